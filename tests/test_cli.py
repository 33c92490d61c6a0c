from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cksc_dist
from cksc_dist import CKSC, DistanceKernel, SeriesSet, load_model, pairwise_dtw
from cksc_dist.cli import main
from cksc_dist.commands import info as info_module
from cksc_dist.commands.amounts import in_bytes
from cksc_dist.commands.info import summary
from cksc_dist.commands.screen import Screen
from cksc_dist.commands.sparkline import ASCII, BLOCKS, sparkline
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.models import prediction
from cksc_dist.models.explanation import Explanation

ROOT = Path(__file__).resolve().parents[1]
CKSC_COMMAND = [sys.executable, "-m", "cksc_dist.cli"]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and the series held out, as ``cksc demo --save`` leaves them."""
    model = tmp_path_factory.mktemp("demo") / "gestures"
    assert main(["demo", "--per-class", "12", "--seed", "3", "--n-jobs", "1", "--save", str(model)]) == 0
    return model, model.with_name("gestures.test.npz")


def held_out(saved: tuple[Path, Path]) -> SeriesSet:
    return SeriesSet.read(saved[1])


def test_version_is_that_of_pyproject(capsys: pytest.CaptureFixture[str]) -> None:
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert cksc_dist.__version__ == written
    assert "__version__" in dir(cksc_dist)
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"cksc {written}\n"


def test_help_needs_neither_numpy_nor_rich() -> None:
    program = (
        "import sys\nfrom cksc_dist.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numpy', 'numba', 'sklearn', 'zarr', 'rich') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.endswith("[]\n")
    assert "cksc demo" in out


@pytest.mark.parametrize("command", ["demo", "info", "predict"])
def test_help_of_each_command_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"examples:\n  cksc {command}" in capsys.readouterr().out


# demo


def test_demo_prints_what_can_be_computed_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--per-class", "6", "--seed", "5", "--n-jobs", "1"]) == 0
    out = capsys.readouterr().out
    data = make_gestures(n_per_class=6, random_state=5)
    train, test = np.arange(0, 24, 2), np.arange(1, 24, 2)
    D = pairwise_dtw(data)
    y = data.labels
    kernel = DistanceKernel()
    model = CKSC(sparsity=3, random_state=5).fit(kernel.fit_transform(D[np.ix_(train, train)]), y[train])
    K_test = kernel.transform(D[np.ix_(test, train)])
    nearest = y[train][D[np.ix_(test, train)].argmin(axis=1)]
    assert "24 series of 4 classes, 3 dimensions" in out
    assert f"{24 * 23 // 2} pairs" in out
    assert re.search(rf"accuracy, CKSC +{model.score(K_test, y[test]):.1%} of 12 series", out)
    assert re.search(rf"accuracy, 1-NN +{np.mean(nearest == y[test]):.1%} on the same", out)
    assert f"{model.n_iter_} alternations" in out
    assert re.search(rf"beta +{model.beta_:.3f}", out)
    assert re.search(rf"interpretability +{model.interpretability_.mean():.1%}", out)
    assert f"{len(model.support_)} of 12 series carry weight" in out
    explanation = model.explain(K_test[0], top=3)
    assert f"gesture0/1 is decided to be {explanation.label}" in out
    for part in explanation.samples:
        assert re.search(rf"{part.share:.0%}  {data.ids[train[part.row]]} +[{BLOCKS}]", out)


def test_demo_is_the_same_for_a_seed_and_any_threads(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed, threads in [("1", "1"), ("1", "2"), ("2", "1")]:
        main(["demo", "--per-class", "6", "--seed", seed, "--n-jobs", threads])
        outputs.append(capsys.readouterr().out.split("One decision")[1])
    assert outputs[0] == outputs[1] != outputs[2]


def test_demo_draws_with_plain_letters_where_the_stream_has_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["demo", "--per-class", "6", "--n-jobs", "1"]) == 0
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")
    assert re.search(rf"sample  gesture0/1 +[{re.escape(ASCII)}]{{4}}", text)


def test_demo_saves_a_model_and_the_series_held_out(saved: tuple[Path, Path]) -> None:
    data = held_out(saved)
    every = make_gestures(n_per_class=12, random_state=3)
    assert data.ids.tolist() == every.ids[1::2].tolist()
    assert load_model(saved[0]).n_train_ == 24


def test_a_warning_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["demo", "--per-class", "2", "--n-jobs", "1"]) == 0
    error = capsys.readouterr().err
    assert error.startswith("cksc: warning: class 'gesture0' has 1 samples")
    assert ".py" not in error


# info


def test_info_tells_what_is_in_each_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_npz(tmp_path / "first.npz", make_gestures(n_per_class=3, n_classes=2, dims=2))
    (tmp_path / "second.ts").write_text("@problemName taps\n@classLabel false\n@data\n1,2,3\n4,4\n5,6,7,8\n")
    assert main(["info", str(tmp_path / "first.npz"), str(tmp_path / "second.ts")]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith(f"{tmp_path / 'first.npz'}\n")
    assert re.search(r"^series +6$", first, re.MULTILINE)
    assert re.search(r"^classes +2: gesture0 3, gesture1 3$", first, re.MULTILINE)
    assert re.search(r"^dimensions +2$", first, re.MULTILINE)
    assert re.search(r"^constant dimensions +none$", first, re.MULTILINE)
    assert "none: the series have no labels" in second
    assert "2 shortest, 3 median, 4 longest" in second
    assert "0 of 1 have one value in the whole set; 1 of 3 series" in second
    assert "72 bytes in float64; 3 pairs" in second


def test_summary_counts_dimensions_without_change() -> None:
    moving = np.arange(6.0).reshape(3, 2)
    data = SeriesSet.from_list([moving * [1, 0], moving * [1, 0] + [0, 0], moving * [0, 0]], ["a", "b", "b"])
    assert "1 of 2 have one value in the whole set; 3 of 3 series" in dict(summary(data))["constant dimensions"]
    # constant in every series, but not the same constant
    steps = SeriesSet.from_list([moving * [1, 0], moving * [1, 0] + [0, 5]], ["a", "b"])
    assert "0 of 2 have one value in the whole set; 2 of 2" in dict(summary(steps))["constant dimensions"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999 bytes"), (1000, "1 kB"), (80_000_000_000, "80 GB"), (3 * 10**15, "3 PB")],
)
def test_memory_is_told_in_units(count: int, text: str) -> None:
    assert in_bytes(count) == text


def test_reader_options_reach_the_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "taps.ts"
    path.write_text("@problemName taps\n@missing true\n@classLabel false\n@data\n1,?,3\n")
    assert main(["info", str(path)]) == 2
    assert "line 5" in capsys.readouterr().err
    assert main(["info", str(path), "--option", "missing=interpolate"]) == 0
    assert main(["info", str(path), "--option", "centre=none"]) == 2
    assert "option 'centre' does not apply to it" in capsys.readouterr().err


def test_option_none_is_none_and_a_word_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = {}

    def read(path: Path, **options: object) -> SeriesSet:
        seen.update(options)
        return make_gestures(2)

    monkeypatch.setattr(info_module, "read", read)
    assert main(["info", "x", "--option", "centre=none", "--option", "missing=a=b"]) == 0
    assert seen == {"centre": None, "missing": "a=b"}
    with pytest.raises(SystemExit) as stop:
        main(["info", "x", "--option", "missing"])
    assert stop.value.code == 2
    assert "'missing' is not NAME=VALUE" in capsys.readouterr().err


# predict


def test_predict_says_what_the_model_says(saved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *map(str, saved), "--workers", "1"]) == 0
    out = capsys.readouterr().out
    model, data = load_model(saved[0]), held_out(saved)
    score, shares = model.score(data, data.labels), model.class_shares(data).max(axis=1)
    executor, *lines = out.splitlines()
    assert re.fullmatch(
        r"executor: threads \([\d.]+ s are expected, less than a cluster is worth\); workers: 1", executor
    )
    assert lines[0].split()[:4] == ["series", "label", "sure", "truth"]
    for line, name, label, truth, share in zip(
        lines[1:25], data.ids, model.predict(data), data.labels, shares, strict=True
    ):
        verdict = "right" if label == truth else f"wrong: {truth}"
        assert re.match(rf"{name} +{label} +{share:.0%}  {verdict} +row \d+ \({label}\) \d+%, row ", line)
    assert f"accuracy {score:.1%}: {round(24 * score)} of 24 labelled series are right" in out
    needed, spared = model.saved_distances(24)
    assert f"distances computed: {needed:,}, to {len(model.support_)} of 24 training series; saved: {spared:,}" in out


def test_predict_writes_json_lines(saved: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "decisions.jsonl"
    assert main(["predict", *map(str, saved), "--json", str(file), "--top", "2", "--workers", "1"]) == 0
    model, data = load_model(saved[0]), held_out(saved)
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for record, name, truth, series in zip(records, data.ids, data.labels, data, strict=True):
        expected = json.loads(json.dumps(model.explain(series, 2).to_dict()))
        assert record == {"id": str(name), "true_label": str(truth), **expected}
        assert len(record["samples"]) == 2


def test_predict_goes_through_its_series_in_blocks(
    saved: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def explain_many(self: CKSC, X: SeriesSet, top: int) -> list[Explanation]:
        sizes.append(len(X))
        return one_by_one(self, X, top)

    one_by_one = CKSC.explain_many
    files = [tmp_path / "whole.jsonl", tmp_path / "blocks.jsonl"]
    main(["predict", *map(str, saved), "--executor", "serial", "--json", str(files[0])])
    monkeypatch.setattr(prediction, "ROWS", 7)
    monkeypatch.setattr(CKSC, "explain_many", explain_many)
    main(["predict", *map(str, saved), "--executor", "serial", "--json", str(files[1])])
    assert sizes == [7, 7, 7, 3]
    assert files[0].read_text() == files[1].read_text()


def test_json_on_stdout_is_alone_there(saved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *map(str, saved), "--json", "-", "--workers", "1"]) == 0
    captured = capsys.readouterr()
    assert [json.loads(line)["id"] for line in captured.out.splitlines()] == held_out(saved).ids.tolist()
    assert "accuracy" in captured.err


def test_explain_prints_each_decision_in_full(saved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *map(str, saved), "--explain", "--top", "1", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    data, model = held_out(saved), load_model(saved[0])
    for name, series in zip(data.ids, data, strict=True):
        assert f"{name}\n{model.explain(series, 1)}\n" in out


def test_predict_without_labels_has_no_accuracy(
    saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_npz(tmp_path / "new.npz", SeriesSet.from_list(held_out(saved).series[:3]))
    main(["predict", str(saved[0]), str(tmp_path / "new.npz"), "--json", str(tmp_path / "new.jsonl")])
    out = capsys.readouterr().out
    assert "truth" not in out
    assert "accuracy" not in out
    assert "distances computed" in out
    assert "true_label" not in (tmp_path / "new.jsonl").read_text()


def test_predict_counts_only_known_labels_and_names_strange_classes(
    saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = load_model(saved[0]), held_out(saved)
    right = np.flatnonzero(model.predict(data) == data.labels)[:3]
    three = replace(data.select(right), labels=np.array([str(data.labels[right[0]]), "?", "jump"]))
    write_npz(tmp_path / "three.npz", three)
    main(["predict", str(saved[0]), str(tmp_path / "three.npz")])
    out = capsys.readouterr().out
    assert "accuracy 50.0%: 1 of 2 labelled series are right" in out
    assert "never shown these classes, so they count as wrong: jump" in out


def test_labels_that_were_numbers_in_training_match_their_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make_gestures(n_per_class=4, n_classes=2, noise=0.05)
    numbers = (data.labels == "gesture1").astype(int)
    CKSC(sparsity=2, kernel="dtw", random_state=0).fit(data, numbers).save(tmp_path / "model")
    write_npz(tmp_path / "text.npz", replace(data, labels=numbers.astype(str)))
    main(["predict", str(tmp_path / "model"), str(tmp_path / "text.npz")])
    assert "accuracy 100.0%: 8 of 8" in capsys.readouterr().out


def test_a_series_like_no_other_is_called_a_guess(
    saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_npz(tmp_path / "far.npz", SeriesSet.from_list([np.full((50, 3), 1e6)]))
    main(["predict", str(saved[0]), str(tmp_path / "far.npz")])
    assert "none: like no training series, the label is a guess" in capsys.readouterr().out


def test_predict_refuses_what_does_not_fit(
    saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_npz(tmp_path / "flat.npz", make_gestures(2, dims=2))
    assert main(["predict", str(saved[0]), str(tmp_path / "flat.npz")]) == 2
    assert "flat.npz: the series have 2 dims but" in (error := capsys.readouterr().err)
    assert "was trained on 3" in error

    CKSC(sparsity=1, random_state=0).fit(np.eye(4) + 0.1, [0, 0, 1, 1]).save(tmp_path / "gram")
    assert main(["predict", str(tmp_path / "gram"), str(saved[1])]) == 2
    assert "was trained with kernel='precomputed' and cannot take series" in capsys.readouterr().err

    assert main(["predict", str(tmp_path / "absent"), str(saved[1])]) == 2
    assert "absent does not exist" in capsys.readouterr().err


# errors and streams


def test_an_error_is_one_line_and_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "absent.ts"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "cksc: error: absent.ts: does not exist; check the path\n"
    assert captured.out == ""
    assert main(["info", "absent.ts", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_an_error_line(
    saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no").write_bytes(b"a file")
    assert main(["predict", *map(str, saved), "--json", str(tmp_path / "no" / "folder")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cksc: error: ")
    assert str(tmp_path / "no") in error


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(info_module, "read", fault)
    with pytest.raises(RuntimeError, match="a fault"):
        main(["info", "x"])


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(info_module, "read", interrupt)
    assert main(["info", "x"]) == 130
    assert capsys.readouterr().err == "cksc: interrupted; what is done in a store is kept\n"


def test_a_broken_pipe_is_quiet(saved: tuple[Path, Path]) -> None:
    process = subprocess.Popen([*CKSC_COMMAND, "info", str(saved[1])], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, error = process.communicate(timeout=60)
    assert error == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["demo", "--seed", "-1"], "'-1' is not a whole number of at least 0"),
        (["demo", "--per-class", "1"], "'1' is not a whole number of at least 2"),
        (["demo", "--per-class", "many"], "'many' is not a whole number"),
        (["predict", "m", "s", "--top", "0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_wrong_n_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--n-jobs", "0"]) == 2
    assert "n_jobs=0" in capsys.readouterr().err


# screen and sparklines


def test_a_terminal_gets_colours_and_a_bar_and_keeps_names_as_they_are() -> None:
    stream = Terminal()
    screen = Screen(stream)
    screen.heading("[red] heading")
    screen.table(["name", "n"], [["[bold] a", "1"]], right=[1])
    assert list(screen.track(iter("abc"), 3, "letters")) == ["a", "b", "c"]
    with screen.busy("waiting"):
        pass
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "[red] heading" in text
    assert re.search(r"\[bold\] a +1", text)
    assert "letters" in text


def test_a_log_gets_neither_bar_nor_spinner() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    assert list(screen.track(iter("abc"), 3, "letters")) == ["a", "b", "c"]
    with screen.busy("waiting"):
        screen.line("done")
    assert stream.getvalue() == "done\n"


def test_sparkline_is_the_mean_of_the_frames_of_a_letter() -> None:
    assert sparkline(np.array([0.0, 2.0, 8.0, 8.0, 0.0]), 8, 0.0, 8.0) == "▁▃██▁"
    assert sparkline(np.array([0.0, 0.0, 8.0, 8.0]), 2, 0.0, 8.0) == "▁█"
    assert sparkline(np.array([0.0, 8.0]), 1, 0.0, 8.0) == "▅"
    assert sparkline(np.array([3.0, 3.0]), 2, 3.0, 3.0) == "▅▅"


def test_the_package_is_a_program() -> None:
    words = [
        subprocess.run([sys.executable, "-m", name, "--help"], capture_output=True, text=True, check=True).stdout
        for name in ("cksc_dist", "cksc_dist.cli")
    ]
    assert words[0] == words[1]
    assert words[0].startswith("usage: cksc ")
