"""L-BFGS."""

from .. import _core
from ..autograd.grad_mode import enable_grad, no_grad
from .optimizer import Optimizer


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal 1980) with torch.optim.LBFGS's options, steps and state; one group of parameters.

    step(closure) evaluates the loss up to max_eval times in max_iter iterations; closure clears the gradients, computes
    them and returns the loss. line_search_fn: None for steps of length lr, or "strong_wolfe". Besides the parameters it
    keeps history_size pairs of vectors of their size. ValueError for a negative lr and several groups.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.LBFGS([w])
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (w - 3).square().sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> w.data
    tensor([3., 3.])
    """

    def __init__(
        self,
        params,
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
        *,
        maximize=False,
    ):
        if not lr >= 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: line_search_fn must be None or 'strong_wolfe', got {line_search_fn!r}")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
            "maximize": maximize,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self):
        return self.param_groups[0]["params"]

    def _gradient(self):
        """The gradients of all parameters as one vector; those of a maximum negated."""
        flat = _core.cat(
            [
                _core.zeros(p.numel(), dtype=p.dtype, device=p.device) if p.grad is None else p.grad.reshape(-1)
                for p in self._params
            ],
            0,
        )
        return -flat if self.param_groups[0]["maximize"] else flat

    def _move(self, length, direction):
        at = 0
        for p in self._params:
            p.add_(direction[at : at + p.numel()].view(p.shape), alpha=length)
            at += p.numel()

    @no_grad()
    def step(self, closure):
        """Goes towards a minimum; returns the loss that it began with. closure() clears the gradients, computes them
        and returns the loss."""
        group = self.param_groups[0]
        closure = enable_grad()(closure)
        sign = -1.0 if group["maximize"] else 1.0
        lr, line_search = float(group["lr"]), group["line_search_fn"]
        state = self.state[self._params[0]]  # of all: one vector
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        first_loss = closure()
        loss = sign * float(first_loss)
        evaluations = 1
        state["func_evals"] += 1
        gradient = self._gradient()
        if gradient.abs().max().item() <= group["tolerance_grad"]:
            return first_loss

        def evaluate(length, direction, start):
            """Loss and gradient `length` along the direction; the parameters stay where they were."""
            self._move(length, direction)
            value = sign * float(closure())
            there = self._gradient()
            for p, before in zip(self._params, start):
                p.copy_(before)
            return value, there

        direction, length = state.get("d"), state.get("t")
        previous, previous_loss = state.get("prev_flat_grad"), state.get("prev_loss")
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction = -gradient
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            else:
                _remember(state, gradient - previous, direction * length, group["history_size"])
                direction = _quasi_newton(state, gradient)
            previous, previous_loss = gradient.clone(), loss

            length = min(1.0, 1.0 / gradient.abs().sum().item()) * lr if state["n_iter"] == 1 else lr
            slope = gradient.dot(direction).item()
            if slope > -group["tolerance_change"]:
                break
            tried = 0
            if line_search is not None:
                start = [p.clone() for p in self._params]
                loss, gradient, length, tried = _strong_wolfe(
                    lambda t: evaluate(t, direction, start),
                    length,
                    direction,
                    loss,
                    gradient,
                    slope,
                    max_steps=group["max_eval"] - evaluations,
                )
                self._move(length, direction)
            else:
                self._move(length, direction)
                if iteration != group["max_iter"]:  # nobody would read it
                    loss, tried = sign * float(closure()), 1
                    gradient = self._gradient()
            evaluations += tried
            state["func_evals"] += tried
            if (
                iteration == group["max_iter"]
                or evaluations >= group["max_eval"]
                or gradient.abs().max().item() <= group["tolerance_grad"]
                or (direction * length).abs().max().item() <= group["tolerance_change"]
                or abs(loss - previous_loss) < group["tolerance_change"]
            ):
                break
        state.update(d=direction, t=length, prev_flat_grad=previous, prev_loss=previous_loss)
        return first_loss


def _remember(state, change, moved, size):
    """Keeps how the gradient changed over the last step, and how large the curvature is."""
    product = change.dot(moved).item()
    if product <= 1e-10:
        return
    for name, value in (("old_dirs", change), ("old_stps", moved), ("ro", 1.0 / product)):
        state[name].append(value)
        if len(state[name]) > size:
            state[name].pop(0)
    state["H_diag"] = product / change.dot(change).item()


def _quasi_newton(state, gradient):
    """The direction -H gradient, H the inverse Hessian that the kept steps tell of."""
    changes, steps, factors = state["old_dirs"], state["old_stps"], state["ro"]
    direction, weights = -gradient, [0.0] * len(changes)
    for i in range(len(changes) - 1, -1, -1):
        weights[i] = steps[i].dot(direction).item() * factors[i]
        direction.add_(changes[i], alpha=-weights[i])
    direction = direction * state["H_diag"]
    for i in range(len(changes)):
        direction.add_(steps[i], alpha=weights[i] - changes[i].dot(direction).item() * factors[i])
    return direction


def _minimum_of_cubic(x1, f1, g1, x2, f2, g2, bounds=None):
    """Where the cubic through two points with these slopes is least, within the bounds."""
    low, high = bounds or (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2
    d2 = square**0.5
    if x1 <= x2:
        at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(at, low), high)


class _Point:
    """A length along the direction, with loss, gradient and slope there."""

    def __init__(self, at, loss, gradient, slope):
        self.at, self.loss, self.gradient, self.slope = at, loss, gradient, slope


def _strong_wolfe(evaluate, length, direction, loss, gradient, slope, max_steps, c1=1e-4, c2=0.9, least=1e-9):
    """A length that meets the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6):
    (loss, gradient, length, evaluations).
    """

    def point(at):
        value, there = evaluate(at)
        return _Point(at, value, there, there.dot(direction).item())

    def too_high(p):
        return p.loss > loss + c1 * p.at * slope

    start = before = _Point(0.0, loss, gradient, slope)
    now, evaluations, steps = point(length), 1, 0
    bracket, done = None, False
    while steps < max_steps:
        if too_high(now) or (steps > 1 and now.loss >= before.loss):
            bracket = [before, now]
        elif abs(now.slope) <= -c2 * slope:
            bracket, done = [now], True
        elif now.slope >= 0:
            bracket = [before, now]
        if bracket is not None:
            break
        bounds = (now.at + 0.01 * (now.at - before.at), now.at * 10)
        at = _minimum_of_cubic(before.at, before.loss, before.slope, now.at, now.loss, now.slope, bounds)
        before, now = now, point(at)
        evaluations, steps = evaluations + 1, steps + 1
    if bracket is None:
        bracket = [start, now]

    largest = direction.abs().max().item()
    low, high = (0, 1) if bracket[0].loss <= bracket[-1].loss else (1, 0)
    stuck = False
    while not done and steps < max_steps:
        a, b = bracket
        if abs(b.at - a.at) * largest < least:
            break
        at = _minimum_of_cubic(a.at, a.loss, a.slope, b.at, b.loss, b.slope)
        left, right = min(a.at, b.at), max(a.at, b.at)
        margin = 0.1 * (right - left)
        if min(right - at, at - left) < margin:  # near an end: a second time in a row is no progress
            if stuck or at >= right or at <= left:
                at = right - margin if abs(at - right) < abs(at - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        now = point(at)
        evaluations, steps = evaluations + 1, steps + 1
        if too_high(now) or now.loss >= bracket[low].loss:
            bracket[high] = now
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
        else:
            if abs(now.slope) <= -c2 * slope:
                done = True
            elif now.slope * (bracket[high].at - bracket[low].at) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = now
    best = bracket[low] if len(bracket) > 1 else bracket[0]
    return best.loss, best.gradient, best.at, evaluations
