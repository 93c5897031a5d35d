"""Make states more isotropic, or less (I-STAR: Rudman & Eickhoff 2024)."""

import math
from typing import Any

import torch

from uncone.arguments import share, shown
from uncone.errors import InputError
from uncone.training.bars.clouds import kind
from uncone.training.cloud import labelled
from uncone.training.penalties.checked import factor, refuse_unless_finite
from uncone.training.penalties.gram import gram

Tensor = torch.Tensor


class IsoScorePenalty:
    """A penalty on states that use few of their dimensions: `attach_states(model, IsoScorePenalty())`. With C the
    covariance (D, D) of N points,

        P = weight (1 - IsoScore*),  IsoScore* = (tr(S)^2 / |S|_F^2 - 1) / (D - 1),  S = (1 - zeta) C + zeta C0

    This is the regulariser of "Stable Anisotropic Regularization" (Rudman & Eickhoff 2024). Its authors use states of
    all tokens and layers, and C0 from a large sample. They found negative weights better for their tasks. Negative
    weights make states *less* isotropic, so expect no gain from isotropy alone.

    The value equals the package IsoScore's (2.0.1) without singular values, because sum of lambda^2 = |S|_F^2. With
    C0 = I, as in the package's documents, the score changes when all points are multiplied by a number. Here C0 is
    (tr C / D) I by default, as in `uncone.measure.isoscore_star`, so the score does not depend on scale. The package
    gives NaN without shrinkage for points that are all alike, turns on gradients for the given points, rounds roots of
    D to float32, and expects a GPU's points on cuda:0 unless `gpu_id` names another GPU.

    Cost: O(N D min(N, D)) for value and gradient, with a target O(N D^2), in float32 at least, whatever the dtype or
    autocast. On a GPU the host waits for the trace.

    A single point, and points that are all alike up to rounding, have no covariance. Without a target their score
    counts as 0 and P is `weight`; the gradient is 0 in any case. Labels are used only to leave out points labelled
    -100.

    Args:
        weight: any number: above 0 raises isotropy, below 0 lowers it.
        zeta: shrinkage in [0, 1].
        target: C0, a symmetric matrix (D, D), for instance `torch.eye(D)`, or the covariance of a large sample.

    InputError for settings out of range; when called, for points or labels of another shape or dtype, fewer than two
    features, or used points that are not finite.
    """

    def __init__(self, weight: float = 1.0, *, zeta: float = 0.2, target: Any = None) -> None:
        self.weight, self.zeta = factor(weight, "weight", -math.inf), share(zeta, "zeta")
        self.target = None if target is None else _symmetric(target)

    def __repr__(self) -> str:
        more = "" if self.target is None else f", target={tuple(self.target.shape)}"
        return f"IsoScorePenalty({self.weight:g}, zeta={self.zeta:g}{more})"

    def __call__(self, points: Tensor, labels: Tensor | None = None) -> Tensor:
        """The penalty, a scalar, of points (N, D); of labels (N,) only -100 counts."""
        x, _ = labelled(points, labels)
        n, d = x.shape
        if d < 2:
            raise InputError(f"expected points of at least two features, got {kind(points)}: isotropy needs directions")
        if self.target is not None and len(self.target) != d:
            raise InputError(f"expected points of the target's {len(self.target)} features, got {d}: use one layer")
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            mean = x.detach().mean(0)  # the sum of the gradient over points is 0 without its own part
            centred = x - mean
            small = self.target is None and n <= d  # tr and |C|_F of the other product are the same
            matrix = gram(centred.T if small else centred) / max(1, n - 1)
            spread = matrix.detach().trace()
            refuse_unless_finite(spread, x)
            # A mean of equal numbers is rounded.
            differs = spread > (8 * torch.finfo(x.dtype).eps) ** 2 * mean.square().sum()
            if self.target is not None:
                self.target = self.target.to(x.device)
                matrix = torch.lerp(torch.where(differs, matrix, 0.0), self.target.to(x.dtype), self.zeta)
                differs = matrix.detach().trace() > 0
            matrix = torch.where(differs, matrix, torch.eye(len(matrix), dtype=x.dtype, device=x.device))
            matrix = matrix / matrix.detach().trace()  # so that squares do not overflow
            concentration = matrix.square().sum() / matrix.trace().square()
            if self.target is None:
                concentration = (1 - self.zeta) ** 2 * concentration + self.zeta * (2 - self.zeta) / d
            score = (1 / concentration - 1) / (d - 1)
            return self.weight * (1 - torch.where(differs, score, 0.0))


def _symmetric(target: Any) -> Tensor:
    try:
        given = torch.as_tensor(target).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"expected a target (D, D), got {shown(target)}: give a tensor") from error
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.is_floating_point():
        raise InputError(f"expected a target (D, D) in floating point, got {kind(given)}: give one row per feature")
    if not torch.allclose(given, given.T) or not bool(torch.isfinite(given).all()) or not bool(given.trace() > 0):
        how = "give a covariance, or torch.eye(D)"
        raise InputError(f"expected a target that is symmetric, finite and has positive trace, got another: {how}")
    return given
