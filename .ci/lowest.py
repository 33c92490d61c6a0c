"""Print the lowest version of every dependency that pyproject.toml allows, as constraints for pip.

    python .ci/lowest.py > .ci/lowest.txt
    pip install -c .ci/lowest.txt -e '.[test]'

A bound that nobody has installed is a guess. .ci/lowest.txt is what the bounds mean, to the letter, and a leg of CI
installs it; tests/faults/test_security.py fails where the two files differ.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORM = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[(?P<extras>[^\]]*)\])?([>=]=(?P<lowest>[0-9][0-9.]*))?$")


def lowest(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the lines of the file: comments that name the group, and name==version."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    lines = ["# written by .ci/lowest.py from pyproject.toml; not by hand"]
    found: dict[str, str] = {}
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    for group, dependencies in groups.items():
        of_group = []
        for dependency in dependencies:
            match = FORM.match(dependency.replace(" ", ""))
            if match is None:
                raise SystemExit(f"pyproject.toml: {dependency!r} has another form than name>=version or name==version")
            name, version = match["name"], match["lowest"]
            if name == project["name"]:
                continue  # an extra of our own, which has a group of its own
            if version is None:
                raise SystemExit(f"pyproject.toml: {dependency!r} has no lower bound")
            if found.setdefault(name, version) != version:
                raise SystemExit(f"pyproject.toml: {name} has two lower bounds, {found[name]} and {version}")
            of_group.append(f"{name}=={version}")
        lines += [f"# {group}", *(line for line in of_group if line not in lines)]
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest()) + "\n")
