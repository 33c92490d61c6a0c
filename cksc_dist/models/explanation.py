"""Why a sample got its label: the training samples and atoms that rebuilt it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["AtomPart", "Explanation", "SamplePart"]


@dataclass(frozen=True)
class SamplePart:
    """A training sample in the reconstruction: its row, its label, its share of the whole, and its name.

    The row is that of the training set; of the store, for a model that was trained from one, which knows names as well.
    """

    row: int
    label: Any
    share: float
    id: str | None = None

    @property
    def name(self) -> str:
        """What to call it."""
        return f"row {self.row}" if self.id is None else self.id


@dataclass(frozen=True)
class AtomPart:
    """An atom in the reconstruction: its number, strongest class, share of that class in it (IP), weight."""

    atom: int
    label: Any
    interpretability: float
    weight: float


@dataclass(frozen=True)
class Explanation:
    """A decision that can be read.

    Parameters
    ----------
    label
        The decision.
    confidence
        Share of the decided class.
    shares
        Share of every class in the reconstruction, in the order of ``classes_``; they sum to 1.
    samples
        The training samples that carry most of the reconstruction, largest share first.
    atoms
        The atoms that carry it, largest weight first.
    n_samples, n_atoms
        How many training samples and atoms take part in all.
    similarity
        Cosine between the sample and its reconstruction in feature space (for a kernel with unit diagonal).
    far_away
        The sample is like no training sample at all: the label is just the largest class.
    """

    label: Any
    confidence: float
    shares: dict[Any, float]
    samples: tuple[SamplePart, ...]
    atoms: tuple[AtomPart, ...]
    n_samples: int
    n_atoms: int
    similarity: float
    far_away: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries and lists, ready for JSON."""
        out = asdict(self)
        out["shares"] = {str(name): share for name, share in self.shares.items()}
        return out

    def __str__(self) -> str:
        if self.far_away:
            return (
                f"label {self.label}: a guess, the largest class. The sample is like no training sample; "
                "check its scale, or train on samples like it"
            )
        lines = [
            f"label {self.label}, {self.confidence:.0%} sure; the reconstruction from {self.n_samples} "
            f"training samples and {self.n_atoms} atoms has cosine {self.similarity:.3f} with the sample"
        ]
        ranked = sorted(self.shares.items(), key=lambda item: -item[1])
        lines.append("  classes  " + ", ".join(f"{name} {share:.0%}" for name, share in ranked if share >= 0.005))
        lines += [f"  sample   {part.name} of class {part.label}: {part.share:.0%}" for part in self.samples]
        lines += [
            f"  atom     {part.atom} ({part.interpretability:.0%} {part.label}): weight {part.weight:.3f}"
            for part in self.atoms
        ]
        return "\n".join(lines)
