"""One step of an optimizer on lists of tensors, with torch.optim.functional's names and arguments.

>>> functional.adam([p], [gradient], [exp_avg], [exp_avg_sq], [], [step], amsgrad=False, beta1=0.9, beta2=0.999,
...                 lr=1e-3, weight_decay=0, eps=1e-8, maximize=False)

Parameters and state change in place; nothing is recorded. All lists have one entry for each parameter; state_steps are
tensors with one element, which are counted up first. Statistics of 16-bit parameters are computed in float32 and
written back in the type in which they came. foreach and fused change nothing: a step is one C++ call. ValueError for
lists of other lengths and options out of range; capturable, differentiable, has_sparse_grad, has_complex, grad_scale
and found_inf are refused by name. sparse_adam is not here: there are no sparse tensors.
"""

from .. import _core
from .._documents import describe as _describe
from .muon import step_of_matrix

__all__ = [
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "muon",
    "nadam",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
]

_INSTEAD = {
    "capturable": "use the class with capturable=True: AdamW, Adam, AdamW8bit and SGD can be part of a CUDA graph",
    "differentiable": "steps are not recorded",
    "has_sparse_grad": "there are no sparse tensors",
    "has_complex": "there are no complex tensors",
    "grad_scale": "unscale gradients before with GradScaler.unscale_",
    "found_inf": "skip the step with GradScaler.step",
}


def _refuse(name, options):
    for option, why in _INSTEAD.items():
        given = options.get(option)
        if given is not None and given is not False:
            raise ValueError(f"optim.functional.{name}: {option}={given!r} is not supported; {why}")


def _lengths(name, lists):
    n = len(lists["params"])
    for what, given in lists.items():
        if len(given) != n:
            raise ValueError(f"optim.functional.{name}: {what} has {len(given)} entries for {n} params")


def _apply(rule, given, slots, **options):
    """One step of a rule in C++. given: the caller's arguments by name; slots: {the rule's name of a statistic: the
    name of the caller's list}; options: the rule's that are called otherwise there."""
    name = rule.lower()
    _refuse(name, given)
    for its in slots.values():
        if not isinstance(given[its], list):
            raise TypeError(f"optim.functional.{name}: {its} must be a list, got {type(given[its]).__name__}")
    if not all(isinstance(step, _core.Tensor) for step in given.get("state_steps", ())):
        raise RuntimeError(f"optim.functional.{name}: state_steps must be a list of tensors with one element")
    _lengths(name, {its: given[its] for its in ("params", "grads", *slots.values())})
    group = dict(given, **options, lr=float(given.get("lr", 0)))
    state = {slot: given[its] for slot, its in slots.items()}
    getattr(_core, f"_{rule}_apply")(list(given["params"]), list(given["grads"]), state, group)


def adadelta(
    params,
    grads,
    square_avgs,
    acc_deltas,
    state_steps,
    capturable=False,
    foreach=None,
    differentiable=False,
    has_complex=False,
    *,
    lr,
    rho,
    eps,
    weight_decay,
    maximize,
):
    """A step of optim.Adadelta."""
    given = locals()
    slots = {"step": "state_steps", "square_avg": "square_avgs", "acc_delta": "acc_deltas"}
    _apply("Adadelta", given, slots)


def adafactor(
    params,
    grads,
    row_vars,
    col_vars,
    variances,
    state_steps,
    foreach=None,
    grad_scale=None,
    found_inf=None,
    has_complex=False,
    *,
    d,
    lr,
    beta2_decay,
    weight_decay,
    eps1,
    eps2,
    maximize,
):
    """A step of optim.Adafactor. A matrix has row_vars and col_vars, a vector variances; the others are None.
    eps1 None: the epsilon of its dtype."""
    given = locals()
    slots = {"step": "state_steps", "row_var": "row_vars", "col_var": "col_vars", "variance": "variances"}
    _apply("Adafactor", given, slots, eps=(eps1, eps2))


def adagrad(
    params,
    grads,
    state_sums,
    state_steps,
    fused=None,
    grad_scale=None,
    found_inf=None,
    has_sparse_grad=False,
    foreach=None,
    differentiable=False,
    has_complex=False,
    *,
    lr,
    weight_decay,
    lr_decay,
    eps,
    maximize,
):
    """A step of optim.Adagrad."""
    given = locals()
    slots = {"step": "state_steps", "sum": "state_sums"}
    _apply("Adagrad", given, slots, initial_accumulator_value=0)


def adam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    foreach=None,
    capturable=False,
    differentiable=False,
    fused=None,
    grad_scale=None,
    found_inf=None,
    has_complex=False,
    decoupled_weight_decay=False,
    *,
    amsgrad,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
    maximize,
):
    """A step of optim.Adam. max_exp_avg_sqs is read with amsgrad alone."""
    given = locals()
    slots = {"step": "state_steps", "exp_avg": "exp_avgs", "exp_avg_sq": "exp_avg_sqs"}
    if amsgrad:
        slots["max_exp_avg_sq"] = "max_exp_avg_sqs"
    _apply("Adam", given, slots, betas=(float(beta1), float(beta2)), master_weights=False)


def adamax(
    params,
    grads,
    exp_avgs,
    exp_infs,
    state_steps,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
    has_complex=False,
    *,
    eps,
    beta1,
    beta2,
    lr,
    weight_decay,
):
    """A step of optim.Adamax."""
    given = locals()
    slots = {"step": "state_steps", "exp_avg": "exp_avgs", "exp_inf": "exp_infs"}
    _apply("Adamax", given, slots, betas=(float(beta1), float(beta2)))


def adamw(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    foreach=None,
    capturable=False,
    differentiable=False,
    fused=None,
    grad_scale=None,
    found_inf=None,
    has_complex=False,
    *,
    amsgrad,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
    maximize,
):
    """A step of optim.AdamW: Adam with weight decay beside the gradient."""
    given = locals()
    slots = {"step": "state_steps", "exp_avg": "exp_avgs", "exp_avg_sq": "exp_avg_sqs"}
    if amsgrad:
        slots["max_exp_avg_sq"] = "max_exp_avg_sqs"
    _apply("AdamW", given, slots, betas=(float(beta1), float(beta2)), master_weights=False, decoupled_weight_decay=True)


def asgd(
    params,
    grads,
    axs,
    mus,
    etas,
    state_steps,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
    has_complex=False,
    *,
    lambd,
    lr,
    t0,
    alpha,
    weight_decay,
):
    """A step of optim.ASGD."""
    given = locals()
    slots = {"step": "state_steps", "eta": "etas", "mu": "mus", "ax": "axs"}
    _apply("ASGD", given, slots)


def muon(
    params,
    grads,
    muon_momentum_bufs,
    *,
    foreach=None,
    lr,
    weight_decay,
    momentum,
    nesterov,
    ns_coefficients,
    ns_steps,
    eps,
    adjust_lr_fn,
    has_complex,
):
    """A step of optim.Muon, for matrices alone."""
    _refuse("muon", {"has_complex": has_complex})
    _lengths("muon", {"params": params, "grads": grads, "muon_momentum_bufs": muon_momentum_bufs})
    options = {
        "lr": lr,
        "weight_decay": weight_decay,
        "momentum": momentum,
        "nesterov": nesterov,
        "ns_coefficients": ns_coefficients,
        "ns_steps": ns_steps,
        "eps": eps,
        "adjust_lr_fn": adjust_lr_fn,
    }
    for p, grad, buffer in zip(params, grads, muon_momentum_bufs):
        if p.dim() != 2:
            raise ValueError(f"optim.functional.muon: params must have two dimensions, got shape {list(p.shape)}")
        step_of_matrix(p, grad, buffer, **options)


def nadam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    mu_products,
    state_steps,
    decoupled_weight_decay=False,
    foreach=None,
    capturable=False,
    differentiable=False,
    has_complex=False,
    maximize=False,
    *,
    beta1,
    beta2,
    lr,
    weight_decay,
    momentum_decay,
    eps,
):
    """A step of optim.NAdam."""
    given = locals()
    slots = {"step": "state_steps", "exp_avg": "exp_avgs", "exp_avg_sq": "exp_avg_sqs", "mu_product": "mu_products"}
    _apply("NAdam", given, slots, betas=(float(beta1), float(beta2)))


def radam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    state_steps,
    decoupled_weight_decay=False,
    foreach=None,
    differentiable=False,
    capturable=False,
    has_complex=False,
    maximize=False,
    *,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
):
    """A step of optim.RAdam."""
    given = locals()
    slots = {"step": "state_steps", "exp_avg": "exp_avgs", "exp_avg_sq": "exp_avg_sqs"}
    _apply("RAdam", given, slots, betas=(float(beta1), float(beta2)))


def rmsprop(
    params,
    grads,
    square_avgs,
    grad_avgs,
    momentum_buffer_list,
    state_steps,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
    has_complex=False,
    *,
    lr,
    alpha,
    eps,
    weight_decay,
    momentum,
    centered,
):
    """A step of optim.RMSprop. grad_avgs is read with centered alone, momentum_buffer_list with momentum."""
    given = locals()
    slots = {"step": "state_steps", "square_avg": "square_avgs"}
    if centered:
        slots["grad_avg"] = "grad_avgs"
    if momentum:
        slots["momentum_buffer"] = "momentum_buffer_list"
    _apply("RMSprop", given, slots)


def rprop(
    params,
    grads,
    prevs,
    step_sizes,
    state_steps,
    foreach=None,
    capturable=False,
    maximize=False,
    differentiable=False,
    has_complex=False,
    *,
    step_size_min,
    step_size_max,
    etaminus,
    etaplus,
):
    """A step of optim.Rprop."""
    given = locals()
    slots = {"step": "state_steps", "prev": "prevs", "step_size": "step_sizes"}
    _apply("Rprop", given, slots, etas=(etaminus, etaplus), step_sizes=(step_size_min, step_size_max))


def sgd(
    params,
    d_p_list,
    momentum_buffer_list,
    has_sparse_grad=False,
    foreach=None,
    fused=None,
    grad_scale=None,
    found_inf=None,
    *,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
):
    """A step of optim.SGD. momentum_buffer_list is read with momentum alone; None in it is a first step, whose buffer
    is put there.

    >>> weight, grad = sf.tensor([1., 2.]), sf.tensor([1., 1.])
    >>> optim.functional.sgd([weight], [grad], [None], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0,
    ...                      nesterov=False, maximize=False)
    >>> weight
    tensor([0.9000, 1.9000])
    """
    given = dict(locals(), grads=d_p_list)
    slots = {}
    if momentum:
        slots["momentum_buffer"] = "momentum_buffer_list"
    _apply("SGD", given, slots, master_weights=False, capturable=False)


_describe(globals(), "optim.functional")
