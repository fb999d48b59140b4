"""Maximize the smallest of many <A, M_k> over A > 0 of trace d: a primal-dual interior-point method.

    primal   max mu       <A, M_k> - mu = s_k >= 0        tr A = d            M_k = (u_k v_k' + v_k u_k') / 2
    dual     min d y      Z = y I - sum w_k M_k >= 0      sum w = 1, w >= 0

d y - mu = <A, Z> + sum w_k s_k is the gap: every dual point bounds every mu. An interior-point step (of
Nesterov and Todd) is one linear system with an unknown for each constraint and none for the entries of A,
because inner products of matrices of rank two are products of d-vectors. It uses floating point only.
"""

from dataclasses import dataclass

import numpy as np

from service.cloud.points import Floats

BOUNDARY_SHARE = 0.95  # of the distance to the boundary, the maximum of a step


@dataclass(frozen=True)
class Iterate:
    """A strictly feasible pair."""

    A: Floats
    mu: float
    slack: Floats
    weights: Floats
    y: float

    @property
    def bound(self) -> float:
        """No A reaches a larger mu."""
        return len(self.A) * self.y


def start(A: Floats, u: Floats, v: Floats) -> Iterate:
    """Return a strictly feasible pair, far from the boundaries."""
    gaps = _products(u, A, v)
    slack = gaps - gaps.min() + 1
    weights = 1 / slack / (1 / slack).sum()
    y = float(np.linalg.eigvalsh(combine(u, v, weights))[-1]) + 1 / len(A)
    return Iterate(A, float(gaps.min()) - 1, slack, weights, y)


def combine(u: Floats, v: Floats, weights: Floats) -> Floats:
    """Return the sum of weights_k M_k."""
    half = (u * weights[:, None]).T @ v / 2
    return half + half.T


def step(iterate: Iterate, u: Floats, v: Floats) -> Iterate:
    """Take one step. The length of a feasible step to the optimum decides how much of the gap to close."""
    newton = _Newton(iterate, u, v)
    gram = newton.gram()
    newton.solve(gram)
    length = min(newton.lengths(newton.direction(0.0)))
    tau = (1 - min(1.0, length)) ** 2 * newton.gap
    direction = newton.direction(max(tau, 1e-3 * newton.gap))
    return newton.move(direction, *newton.lengths(direction))


@dataclass(frozen=True)
class _Direction:
    X: Floats  # of A, in scaled coordinates
    mu: float
    slack: Floats
    weights: Floats
    y: float
    Z: Floats  # of Z, in scaled coordinates


class _Newton:
    """The linear system at one iterate, in the coordinates where A and Z are both the diagonal matrix D.

    A moves by X = tau / D - y+ C + sum w+_k M_k, with the new weights w+ and y+; C is the image of I, and
    <C, X> = 0 keeps the trace. The weights solve (G + S/w) w+ = tau (1/w - <M, 1/D>) + y+ c + dmu.
    """

    def __init__(self, iterate: Iterate, u: Floats, v: Floats) -> None:
        self.iterate, self.u, self.v = iterate, u, v
        factor = np.linalg.cholesky(iterate.A)
        dual_factor = np.linalg.cholesky(iterate.y * np.eye(len(iterate.A)) - combine(u, v, iterate.weights))
        _, self.D, rotation = np.linalg.svd(dual_factor.T @ factor)
        self.root = factor @ rotation.T / np.sqrt(self.D)
        self.U, self.V = u @ self.root, v @ self.root
        self.C = self.root.T @ self.root
        self.c = _products(self.U, self.C, self.V)
        self.gap = float(self.D @ self.D + iterate.weights @ iterate.slack) / (len(self.D) + len(u))
        self.tau_side = 1 / iterate.weights - (self.U / self.D * self.V).sum(axis=1)
        self.scale = np.sqrt(iterate.slack / iterate.weights)

    def gram(self) -> Floats:
        """Return G + S/w, scaled to about 1."""
        U, V = self.U, self.V
        gram: Floats = ((U @ U.T) * (V @ V.T) + (U @ V.T) * (V @ U.T)) / 2
        gram /= np.outer(self.scale, self.scale)
        gram[np.diag_indices_from(gram)] += 1
        return gram

    def solve(self, gram: Floats) -> None:
        scale = self.scale[:, None]
        sides = np.stack([self.tau_side, np.ones(len(self.tau_side)), self.c], axis=1) / scale
        self.solved = np.linalg.solve(gram, sides) / scale

    def direction(self, tau: float) -> _Direction:
        """Return the direction to the pair on the central path whose products are all tau."""
        iterate, (w_tau, w_mu, w_y) = self.iterate, self.solved.T
        system = np.array([[w_mu.sum(), w_y.sum()], [self.c @ w_mu, self.c @ w_y - (self.C**2).sum()]])
        sides = np.array([1 - tau * w_tau.sum(), -tau * (np.diag(self.C) @ (1 / self.D) + self.c @ w_tau)])
        mu, y = np.linalg.solve(system, sides)
        weights = tau * w_tau + mu * w_mu + y * w_y
        Z = y * self.C - combine(self.U, self.V, weights)
        slack = (tau - iterate.slack * weights) / iterate.weights
        X = np.diag(tau / self.D) - Z
        return _Direction(X, mu, slack, weights - iterate.weights, y - iterate.y, Z - np.diag(self.D))

    def lengths(self, direction: _Direction) -> tuple[float, float]:
        """Return how far A and the slacks, and how far Z and the weights, can move and stay positive."""
        scale = np.sqrt(np.outer(self.D, self.D))
        slack, weights = direction.slack / self.iterate.slack, direction.weights / self.iterate.weights
        primal = min(float(np.linalg.eigvalsh(direction.X / scale)[0]), float(slack.min()))
        dual = min(float(np.linalg.eigvalsh(direction.Z / scale)[0]), float(weights.min()))
        return min(1.0, BOUNDARY_SHARE / max(-primal, 1e-9)), min(1.0, BOUNDARY_SHARE / max(-dual, 1e-9))

    def move(self, direction: _Direction, primal: float, dual: float) -> Iterate:
        A = self.root @ (np.diag(self.D) + primal * direction.X) @ self.root.T
        A = (A + A.T) * (len(A) / 2 / np.trace(A))
        weights = self.iterate.weights + dual * direction.weights
        gaps = _products(self.u, A, self.v)
        slack = self.iterate.slack + primal * direction.slack
        mu = float((gaps - slack).min())  # the exact mu of A, in spite of rounding
        return Iterate(A, mu, gaps - mu, weights / weights.sum(), self.iterate.y + dual * direction.y)


def _products(u: Floats, A: Floats, v: Floats) -> Floats:
    """Return <A, M_k>."""
    products: Floats = np.einsum("ki,ki->k", u @ A, v)
    return products
