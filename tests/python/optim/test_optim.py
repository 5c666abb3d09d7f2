"""Optimizers: torch's values, state dictionaries and refusals (tests/golden/make_golden_optim.py)."""

import copy
import pickle

import folders
import numpy as np
import pytest
from packed import read_json

import scaffolding as sf
from scaffolding import optim

GOLDEN = read_json(folders.GOLDEN / "optim.json.xz")
TOLERANCE = {"float64": 1e-9, "float32": 1e-6, "float16": 3e-3, "bfloat16": 3e-2}


def parameters(dtypes={}):
    out = {}
    for name, shape in GOLDEN["shapes"].items():
        dtype = getattr(sf, dtypes.get(name, "float32"))
        out[name] = sf.nn.Parameter(sf.tensor(GOLDEN["initial"][name], dtype=sf.float64).reshape(shape).to(dtype))
    return out


def set_gradients(params, t):
    for name, p in params.items():
        if t == 3 and name == "b":
            p.grad = None
        else:
            p.grad = sf.tensor(GOLDEN["grads"][t][name], dtype=sf.float64).reshape(p.shape).to(p.dtype)


def make(case, params):
    special = case["special"]
    groups = (
        [{"params": [p], **special.get(n, {})} for n, p in params.items()]
        if any(n in special for n in params)
        else list(params.values())
    )
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in case["options"].items()}
    return getattr(optim, case["class"])(groups, **options)


def assert_like(params, expected, what):
    at = 0
    for name, p in params.items():
        want = np.array(expected[at : at + p.numel()])
        at += p.numel()
        got = p.detach().double().numpy().ravel()
        limit = TOLERANCE[str(p.dtype).split(".")[-1]]
        assert np.abs(got - want).max() <= limit * max(1, np.abs(want).max()), (what, name, got, want)


CASES = sorted(name for name, case in GOLDEN["optimizers"].items() if hasattr(optim, case["class"]))


@pytest.mark.parametrize("name", CASES)
def test_ten_steps_are_torchs(name):
    case = GOLDEN["optimizers"][name]
    params = parameters(case["special"].get("dtypes", {}))
    optimizer = make(case, params)
    for t, expected in enumerate(case["values"]):
        set_gradients(params, t)
        assert optimizer.step() is None
        assert_like(params, expected, (name, t))


def tensors_of(o):
    """The golden file's form of a state dictionary back as tensors."""
    if isinstance(o, dict) and set(o) == {"dtype", "shape", "values"}:
        return sf.tensor(o["values"], dtype=sf.float64).reshape(o["shape"]).to(getattr(sf, o["dtype"]))
    if isinstance(o, dict):
        return {int(k) if k.isdigit() else k: tensors_of(v) for k, v in o.items()}
    if isinstance(o, list):
        return [tensors_of(v) for v in o]
    return o


@pytest.mark.parametrize("name", [n for n in CASES if not GOLDEN["optimizers"][n]["special"].get("dtypes")])
def test_torchs_state_dict_loads_and_goes_on(name):
    case = GOLDEN["optimizers"][name]
    params = parameters()
    with sf.no_grad():
        at = 0
        for p in params.values():
            p.copy_(sf.tensor(case["values"][4][at : at + p.numel()]).reshape(p.shape))
            at += p.numel()
    optimizer = make(case, params)
    optimizer.load_state_dict(tensors_of(case["state_dict"]))
    for t in range(5, 10):
        set_gradients(params, t)
        optimizer.step()
        assert_like(params, case["values"][t], (name, t))


@pytest.mark.parametrize("name", CASES)
def test_state_dict_has_torchs_keys(name):
    case = GOLDEN["optimizers"][name]
    params = parameters(case["special"].get("dtypes", {}))
    optimizer = make(case, params)
    for t in range(5):
        set_gradients(params, t)
        optimizer.step()
    want, got = tensors_of(case["state_dict"]), optimizer.state_dict()
    assert set(got) == {"state", "param_groups"}
    assert {k: set(v) for k, v in got["state"].items()} == {
        k: {n for n, t in v.items() if t is not None} for k, v in want["state"].items()
    }
    for i, state in got["state"].items():
        for key, tensor in state.items():
            assert list(tensor.shape) == list(want["state"][i][key].shape), key
    for got_group, want_group in zip(got["param_groups"], want["param_groups"], strict=True):
        assert got_group["params"] == want_group["params"]
        assert set(want_group) <= set(got_group)
        for key, value in want_group.items():
            assert got_group[key] == (tuple(value) if isinstance(got_group[key], tuple) else value), key


def test_repr_is_torchs_but_for_own_options():
    case = GOLDEN["optimizers"]["adamw_groups"]
    text = repr(make(case, parameters()))
    assert text.replace("    master_weights: False\n", "") == case["repr"]


def test_resumed_run_is_the_same():
    def run(save_at):
        params = parameters()
        optimizer = optim.AdamW(params.values(), lr=0.1, amsgrad=True)
        for t in range(10):
            if t == save_at:
                saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
                optimizer = optim.AdamW(params.values())
                optimizer.load_state_dict(saved)
            set_gradients(params, t)
            optimizer.step()
        return [p.tolist() for p in params.values()]

    assert run(None) == run(6)


# ---- 16-bit parameters


def test_master_weights_keep_small_updates():
    p = sf.nn.Parameter(sf.ones(8, dtype=sf.bfloat16))
    q = sf.nn.Parameter(sf.ones(8))
    lossy = sf.nn.Parameter(sf.ones(8, dtype=sf.bfloat16))
    optimizer = optim.AdamW([p], lr=1e-4, weight_decay=0, master_weights=True)
    reference, plain = optim.AdamW([q], lr=1e-4, weight_decay=0), optim.AdamW([lossy], lr=1e-4, weight_decay=0)
    for _ in range(50):
        p.grad, q.grad, lossy.grad = sf.ones(8, dtype=sf.bfloat16), sf.ones(8), sf.ones(8, dtype=sf.bfloat16)
        optimizer.step(), reference.step(), plain.step()
    master = optimizer.state[p]["master"]
    assert master.dtype is sf.float32
    assert sf.allclose(master, q, rtol=0, atol=1e-6)
    assert sf.equal(p, master.bfloat16()) and p[0].item() < 1
    assert sf.equal(lossy, sf.ones(8, dtype=sf.bfloat16))
    assert optimizer.state[p]["exp_avg"].dtype is sf.float32


def test_sgd_master_weights_and_mixed_gradients():
    p = sf.nn.Parameter(sf.ones(4, dtype=sf.float16))
    optimizer = optim.SGD([p], lr=1e-5, momentum=0.5, master_weights=True)
    for _ in range(3):
        p.grad = None
        p.grad = sf.ones(4, dtype=sf.float16)
        optimizer.step()
    assert sf.allclose(optimizer.state[p]["master"], sf.full((4,), 1 - 1e-5 * (1 + 1.5 + 1.75)), rtol=0, atol=1e-7)


# ---- moments in eight bits


def dynamic_map(signed):
    """The map's definition: seven decades, the i-th from below split into 2^i parts (2^(i+1) without a sign)."""
    levels = [0.0, 1.0]
    for i in range(7):
        edges = np.linspace(0.1, 1, 2 ** (i + (not signed)) + 1)
        middles = 10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2
        levels += list(middles) + (list(-middles) if signed else [])
    return np.sort(np.array(levels, dtype=np.float32))


def test_dynamic_maps():
    for signed in (True, False):
        want = dynamic_map(signed)
        assert len(want) == 256
        np.testing.assert_allclose(sf._core._dynamic_map(signed), want, rtol=1e-6)


def test_eight_bit_moments_are_the_nearest_levels():
    p = sf.nn.Parameter(sf.randn(5000))
    optimizer = optim.AdamW8bit([p], lr=0.1)
    reference = sf.nn.Parameter(p.detach().clone())
    exact = optim.AdamW([reference], lr=0.1)
    g = sf.randn(5000) ** 5
    p.grad, reference.grad = g.clone(), g.clone()
    optimizer.step(), exact.step()
    assert sf.allclose(p, reference, rtol=0, atol=1e-6)  # moments are rounded after the first step
    state, full = optimizer.state[p], exact.state[reference]
    assert state["state1"].dtype is sf.uint8 and state["state1"].shape == p.shape and state["absmax1"].shape == (20,)
    for code, scale, value, signed in (
        ("state1", "absmax1", "exp_avg", True),
        ("state2", "absmax2", "exp_avg_sq", False),
    ):
        levels = dynamic_map(signed)
        want = np.pad(full[value].numpy(), (0, 120)).reshape(20, 256)
        np.testing.assert_allclose(state[scale].numpy(), np.abs(want).max(1), rtol=1e-6)
        scaled = want / np.abs(want).max(1, keepdims=True)
        nearest = np.abs(scaled[..., None] - levels).min(-1).ravel()[:5000]
        got = np.abs(levels[state[code].numpy()] - scaled.ravel()[:5000])
        tiny = np.abs(scaled.ravel()[:5000]) < 1e-6  # keep their sign instead
        assert (got[~tiny] <= nearest[~tiny] + 1e-6).all()
        assert (np.sign(levels[state[code].numpy()]) == np.sign(scaled.ravel()[:5000]))[~tiny].all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_eight_bit_steps_stay_close_to_full_ones(dtype):
    dtype = getattr(sf, dtype)
    start, target = sf.randn(6000), sf.randn(6000)
    p, q = sf.nn.Parameter(start.to(dtype)), sf.nn.Parameter(start.clone())
    small, full = optim.AdamW8bit([p], lr=0.02, master_weights=True), optim.AdamW([q], lr=0.02)
    for _ in range(100):
        p.grad, q.grad = (p.detach().float() - target).to(dtype), q.detach() - target
        small.step(), full.step()
    distance = (start - target).norm()
    assert (p.float() - q).norm() < 0.05 * distance
    assert small.state[p]["step"].item() == 100


def test_eight_bit_leaves_small_tensors_alone_and_resumes():
    def run(save_at):
        sf.manual_seed(5)
        p, q = sf.nn.Parameter(sf.randn(4500)), sf.nn.Parameter(sf.randn(7))
        optimizer = optim.AdamW8bit([p, q], lr=0.1)
        for t in range(6):
            if t == save_at:
                saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
                optimizer = optim.AdamW8bit([p, q])
                optimizer.load_state_dict(saved)
            p.grad, q.grad = sf.randn(4500), sf.randn(7)
            optimizer.step()
        assert optimizer.state[q]["state1"].dtype is sf.float32 and "absmax1" not in optimizer.state[q]
        assert optimizer.state[p]["state2"].dtype is sf.uint8
        return p.tolist(), q.tolist()

    assert run(None) == run(3)


# ---- layouts


@pytest.mark.parametrize("cls", [optim.AdamW, optim.SGD])
def test_channels_last_and_strided_parameters(cls):
    values, grad = sf.randn(2, 3, 4, 4), sf.randn(2, 3, 4, 4)

    def run(data):
        p = sf.nn.Parameter(data)
        optimizer = cls([p], lr=0.1)
        for _ in range(3):
            p.grad = grad.clone()
            optimizer.step()
        return p

    want = run(values.clone())
    assert sf.equal(run(values.clone().contiguous(memory_format=sf.channels_last)), want)
    wide = sf.zeros(2, 3, 4, 8)
    wide[..., ::2] = values
    strided = run(wide[..., ::2])
    assert not strided.is_contiguous() and sf.equal(strided, want)
    assert sf.equal(wide[..., 1::2], sf.zeros(2, 3, 4, 4))


# ---- groups, hooks, closures


def test_add_param_group_and_options_of_groups():
    a, b = sf.nn.Parameter(sf.ones(2)), sf.nn.Parameter(sf.ones(2))
    optimizer = optim.SGD([a], lr=0.5)
    group = {"params": b, "lr": 0.25}
    optimizer.add_param_group(group)
    assert optimizer.param_groups[1] is group and group["params"] == [b] and group["momentum"] == 0
    a.grad, b.grad = sf.ones(2), sf.ones(2)
    optimizer.step()
    assert a.tolist() == [0.5, 0.5] and b.tolist() == [0.75, 0.75]
    optimizer.param_groups[0]["lr"] = 0
    optimizer.step()
    assert a.tolist() == [0.5, 0.5] and b.tolist() == [0.5, 0.5]


def test_named_parameters_are_accepted():
    a = sf.nn.Parameter(sf.ones(2))
    optimizer = optim.SGD([("weight", a)], lr=0.5)
    assert optimizer.param_groups[0]["param_names"] == ["weight"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight"]


def test_zero_grad():
    a = sf.nn.Parameter(sf.ones(2))
    optimizer = optim.SGD([a], lr=0.5)
    a.grad = g = sf.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert a.grad is g and g.tolist() == [0, 0]
    optimizer.zero_grad()
    assert a.grad is None
    optimizer.zero_grad()


def test_closure_is_called_with_recording_on():
    a = sf.nn.Parameter(sf.tensor([3.0]))
    optimizer = optim.SGD([a], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (a * a).sum()
        loss.backward()
        return loss

    with sf.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 9 and abs(a.item() - 2.4) < 1e-6


@pytest.mark.parametrize("cls", [optim.AdamW, optim.Adafactor])
def test_a_step_calls_its_hooks_once(cls):
    optimizer, seen = cls([sf.nn.Parameter(sf.ones(1))]), []
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    optimizer.step()
    assert seen == ["post"]


def test_step_hooks():
    a = sf.nn.Parameter(sf.ones(1))
    optimizer = optim.SGD([a], lr=0.1)
    seen = []
    pre = optimizer.register_step_pre_hook(lambda opt, args, kwargs: seen.append("pre"))
    optimizer.register_step_post_hook(lambda opt, args, kwargs: seen.append("post"))
    with optim.register_optimizer_step_pre_hook(lambda opt, args, kwargs: seen.append("all")):
        optimizer.step()
    pre.remove()
    optimizer.step()
    assert seen == ["all", "pre", "post", "post"]


def test_gradients_accumulate_over_backward_calls():
    a, b = sf.nn.Parameter(sf.tensor([1.0])), sf.nn.Parameter(sf.tensor([1.0]))
    one, two = optim.AdamW([a], lr=0.1), optim.AdamW([b], lr=0.1)
    for x in (1.0, 2.0, 3.0):
        (a * x / 3).sum().backward()
    (b * 2.0).sum().backward()
    one.step(), two.step()
    assert a.item() == pytest.approx(b.item(), abs=1e-7)


def test_users_own_optimizer():
    class Sign(optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        @sf.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["count"] = state.get("count", 0) + 1
                    p.add_(p.grad.sign(), alpha=-group["lr"])

    a = sf.nn.Parameter(sf.tensor([1.0, -1.0]))
    optimizer = Sign([a])
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    a.grad = sf.tensor([5.0, -0.1])
    optimizer.step()
    assert seen == [1] and sf.allclose(a, sf.tensor([0.9, -0.9]))
    other = Sign([a])
    other.load_state_dict(optimizer.state_dict())
    assert other.state[a]["count"] == 1
    assert repr(optimizer) == "Sign (\nParameter Group 0\n    lr: 0.1\n)"


def test_deepcopy_and_pickle():
    a = sf.nn.Parameter(sf.ones(2))
    optimizer = optim.AdamW([a], lr=0.1)
    a.grad = sf.ones(2)
    optimizer.step()
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        b = twin.param_groups[0]["params"][0]
        assert b is not a and sf.equal(b, a)
        b.grad = sf.ones(2)
        twin.step()
        assert twin.state[b]["step"].item() == 2 and optimizer.state[a]["step"].item() == 1


# ---- refusals


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda p: optim.AdamW([]), ValueError, "optimizer got an empty parameter list"),
        (lambda p: optim.AdamW(p), TypeError, "should be an iterable of Tensors or dicts"),
        (lambda p: optim.AdamW([p], lr=-1), ValueError, "Invalid learning rate: -1.0"),
        (lambda p: optim.AdamW([p], betas=(1.0, 0.9)), ValueError, "Invalid beta parameter at index 0: 1.0"),
        (lambda p: optim.AdamW([p], betas=(0.9, -0.5)), ValueError, "Invalid beta parameter at index 1: -0.5"),
        (lambda p: optim.AdamW([p], betas=0.9), TypeError, "betas must be a pair of numbers"),
        (lambda p: optim.AdamW([p], eps=-1e-8), ValueError, "Invalid epsilon value: -1e-08"),
        (lambda p: optim.AdamW([p], weight_decay=-0.5), ValueError, "Invalid weight_decay value: -0.5"),
        (lambda p: optim.AdamW([p], lr="fast"), TypeError, "lr must be a number"),
        (lambda p: optim.AdamW([{"params": [p], "lr": -3.0}]), ValueError, "Invalid learning rate: -3.0"),
        (lambda p: optim.AdamW([p], differentiable=True), ValueError, "differentiable=True is not supported"),
        (lambda p: optim.AdamW8bit([p], min_8bit_size=-1), ValueError, "Invalid min_8bit_size value: -1"),
        (lambda p: optim.Adafactor([p], d=0.5), ValueError, "Clipping threshold d should be >= 1 but is: 0.5"),
        (lambda p: optim.Adafactor([p], eps=(None, -1.0)), ValueError, "epsilon2 should be >= 0 but is: -1.0"),
        (lambda p: optim.SGD([p], momentum=-1.0), ValueError, "Invalid momentum value: -1.0"),
        (
            lambda p: optim.SGD([p], nesterov=True),
            ValueError,
            "Nesterov momentum requires a momentum and zero dampening",
        ),
        (lambda p: optim.SGD([p * 2]), ValueError, "can't optimize a non-leaf Tensor"),
        (lambda p: optim.SGD([p, "x"]), TypeError, "but one of the params is str"),
        (
            lambda p: optim.SGD([{"params": [p]}, {"params": [p]}]),
            ValueError,
            "some parameters appear in more than one parameter group",
        ),
        (lambda p: optim.SGD([p, p]), ValueError, "appear more than once"),
        (lambda p: optim.SGD({p}), TypeError, "ordered collections"),
    ],
)
def test_refusals_at_construction(make, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        make(sf.nn.Parameter(sf.ones(2)))


def test_a_refused_group_changes_nothing():
    a = sf.nn.Parameter(sf.ones(2))
    optimizer = optim.SGD([a], lr=0.5)
    group = {"params": [a]}
    with pytest.raises(ValueError):
        optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1 and group == {"params": [a]}


def test_state_of_another_shape_is_refused():
    a = sf.nn.Parameter(sf.ones(2))
    optimizer = optim.AdamW([a])
    a.grad = sf.ones(2)
    optimizer.step()
    saved = optimizer.state_dict()
    b = sf.nn.Parameter(sf.ones(3))
    other = optim.AdamW([b])
    with pytest.raises(ValueError, match="AdamW: exp_avg must have shape"):
        other.load_state_dict(saved)
    assert other.param_groups[0]["params"][0] is b and not other.state
    other.state[b] = {"exp_avg": sf.ones(2)}
    b.grad = sf.ones(3)
    with pytest.raises(ValueError, match="exp_avg must have shape"):
        other.step()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        other.load_state_dict({"state": {}, "param_groups": []})
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        other.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})


def test_integer_parameters_are_refused():
    a = sf.ones(2, dtype=sf.int64)
    optimizer = optim.AdamW([a])
    optimizer.step()  # no gradient: nothing to do
    assert optimizer.state_dict()["state"] == {}


# ---- optimizers that are rules in ops, and L-BFGS


def test_lion_takes_steps_of_one_size():
    p = sf.nn.Parameter(sf.tensor([1.0, -2.0, 3.0]))
    optimizer = optim.Lion([p], lr=0.1, betas=(0.5, 0.9), weight_decay=0.5)
    want, average = np.array([1.0, -2.0, 3.0]), np.zeros(3)
    for g in ([1.0, -2.0, 0.0], [-4.0, 1.0, 0.0], [0.1, 0.1, -7.0]):
        p.grad = sf.tensor(g)
        optimizer.step()
        want = want * (1 - 0.1 * 0.5) - 0.1 * np.sign(0.5 * average + 0.5 * np.array(g))
        average = 0.9 * average + 0.1 * np.array(g)
    np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(optimizer.state[p]["exp_avg"].numpy(), average, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(GOLDEN["lbfgs"]))
def test_lbfgs_goes_torchs_way(name):
    case = GOLDEN["lbfgs"][name]
    a = sf.tensor([-1.2], dtype=sf.float64, requires_grad=True)
    b = sf.tensor([1.0, 0.5], dtype=sf.float64, requires_grad=True)
    optimizer = optim.LBFGS([a, b], **case["options"])
    sign = -1 if case["options"].get("maximize") else 1

    def closure():
        assert sf.is_grad_enabled()
        optimizer.zero_grad()
        loss = sign * ((1 - a) ** 2 + 10 * (b - a**2) ** 2).sum()
        loss.backward()
        return loss

    for loss, values in zip(case["losses"], case["values"], strict=True):
        with sf.no_grad():
            assert abs(optimizer.step(closure).item() - loss) <= 1e-6 * max(1, abs(loss))
        np.testing.assert_allclose([*a.tolist(), *b.tolist()], values, rtol=1e-6)
    state = optimizer.state[a]
    assert (state["func_evals"], state["n_iter"]) == (case["func_evals"], case["n_iter"])


def test_lbfgs_goes_on_from_its_state():
    def run(save):
        x = sf.tensor([3.0, -2.0], dtype=sf.float64, requires_grad=True)
        optimizer = optim.LBFGS([x], max_iter=3, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            loss = (x**4 + x).sum()
            loss.backward()
            return loss

        for t in range(4):
            if save and t == 2:
                state = copy.deepcopy(optimizer.state_dict())
                optimizer = optim.LBFGS([x], max_iter=3, line_search_fn="strong_wolfe")
                optimizer.load_state_dict(state)
            optimizer.step(closure)
        return x.tolist()

    assert run(True) == run(False)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: optim.RMSprop([p], alpha=-1.0), "Invalid alpha value: -1.0"),
        (lambda p: optim.Adagrad([p], lr_decay=-1), "Invalid lr_decay value: -1.0"),
        (lambda p: optim.Adamax([p], betas=(1.0, 0.9)), "Invalid beta parameter at index 0: 1.0"),
        (lambda p: optim.NAdam([p], momentum_decay=-1), "Invalid momentum_decay value: -1.0"),
        (lambda p: optim.RAdam([p], lr=-1), "Invalid learning rate: -1.0"),
        (lambda p: optim.Lion([p], weight_decay=-1), "Invalid weight_decay value: -1.0"),
        (lambda p: optim.Adadelta([p], rho=1.5), "Invalid rho value: 1.5"),
        (lambda p: optim.ASGD([p], lambd=-1), "Invalid lambd value: -1.0"),
        (lambda p: optim.Rprop([p], etas=(1.5, 2.0)), "Invalid eta values: 1.5, 2.0"),
        (lambda p: optim.LBFGS([p], lr=-1), "Invalid learning rate: -1"),
        (lambda p: optim.LBFGS([p], line_search_fn="armijo"), "'strong_wolfe', got 'armijo'"),
        (lambda p: optim.RMSprop([p], capturable=True), "capturable=True is not supported"),
        (lambda p: optim.NAdam([p], differentiable=True), "steps are not recorded"),
    ],
)
def test_rules_in_ops_refuse_options(make, message):
    with pytest.raises(ValueError, match=message.replace("(", "\\(")):
        make(sf.nn.Parameter(sf.ones(2)))


@pytest.mark.parametrize(
    "name", ["ASGD", "Adadelta", "Adagrad", "Adamax", "Lion", "NAdam", "RAdam", "RMSprop", "Rprop"]
)
def test_rules_in_ops_take_any_layout_and_refuse_odd_state(name):
    plain, strided = sf.nn.Parameter(sf.arange(12.0).reshape(3, 4)), sf.arange(24.0).reshape(3, 8)
    with sf.no_grad():
        strided[:, ::2] = plain
    view = sf.nn.Parameter(strided[:, ::2])
    first, second = getattr(optim, name)([plain], lr=0.1), getattr(optim, name)([view], lr=0.1)
    for t in range(3):
        plain.grad = sf.arange(12.0).reshape(3, 4) - 5 - t
        view.grad = (sf.arange(12.0).reshape(4, 3) * 1.0).t() * 0 + plain.grad
        first.step(), second.step()
    assert sf.allclose(plain, view, rtol=1e-6) and not sf.equal(plain, sf.arange(12.0).reshape(3, 4))
    key = next(k for k, v in first.state[plain].items() if v.dim() == 2)
    before = plain.clone()
    first.state[plain][key] = sf.ones(5)
    with pytest.raises(ValueError, match=f"{key} must have shape"):
        first.step()
    assert sf.equal(plain, before)
