"""swap_in_optimizer_params_and_state."""

import copy

import pytest

import scaffolding as sf
from scaffolding.optim import AdamW, swap_in_optimizer_params_and_state


def stepped(steps=2):
    params = {"w": sf.nn.Parameter(sf.tensor([1.0, 2.0])), "b": sf.nn.Parameter(sf.tensor([3.0]))}
    optimizer = AdamW([{"params": [params["w"]]}, {"params": [params["b"]], "lr": 0.5}], lr=0.1)
    for _ in range(steps):
        step(params, optimizer)
    return params, optimizer


def step(params, optimizer):
    for p in params.values():
        p.grad = p.detach() * 2
    optimizer.step()


def values(params):
    return [p.tolist() for p in params.values()]


def test_steps_go_to_what_is_swapped_in():
    params, optimizer = stepped()
    before = values(params), copy.deepcopy(optimizer.state_dict())
    lists, group = [g["params"] for g in optimizer.param_groups], optimizer.param_groups[0]
    others, elsewhere = stepped(5)
    state = copy.deepcopy(elsewhere.state_dict())
    state["param_groups"][0]["lr"] = 0.25
    elsewhere.param_groups[0]["lr"] = 0.25
    seen = []
    optimizer.register_step_post_hook(lambda o, *_: seen.append(o.param_groups[0]["lr"]))
    copies = {name: sf.nn.Parameter(p.detach().clone()) for name, p in others.items()}
    with swap_in_optimizer_params_and_state(optimizer, copies, state):
        step(copies, optimizer)
        assert optimizer.param_groups[0] is group and optimizer.param_groups[0]["params"][0] is copies["w"]
    step(others, elsewhere)
    assert values(copies) == values(others) and seen == [0.25]
    assert [g["params"] for g in optimizer.param_groups] == lists
    assert all(g["params"] is known for g, known in zip(optimizer.param_groups, lists))
    assert values(params) == before[0] and str(optimizer.state_dict()) == str(before[1])
    # Tensors of the state changed in place.
    assert state["state"][0]["step"].item() == 6
    assert state["state"][1]["exp_avg"].equal(elsewhere.state[others["b"]]["exp_avg"])


def test_all_is_back_after_an_error_and_a_load():
    params, optimizer = stepped()
    before = str(optimizer.state_dict())
    copies = {name: sf.nn.Parameter(p.detach().clone()) for name, p in params.items()}
    state = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(KeyError, match="here"):
        with swap_in_optimizer_params_and_state(optimizer, copies, state):
            optimizer.load_state_dict(stepped(7)[1].state_dict())
            optimizer.param_groups[0]["lr"] = 7
            raise KeyError("here")
    assert str(optimizer.state_dict()) == before
    step(params, optimizer)
    assert values(params) == values(stepped(3)[0])


def test_what_is_refused():
    params, optimizer = stepped()
    good = optimizer.state_dict()

    def changed(**what):
        return copy.deepcopy(good) | what

    groups = copy.deepcopy(good["param_groups"])
    for text, tensors, state in (
        ("must be a state_dict", params, []),
        ("must be a state_dict", params, changed(state=[])),
        ("list of the optimizer's 2 groups", params, changed(param_groups=groups[:1])),
        ("'params' of group 0 must be a list of numbers", params, changed(param_groups=[{"params": 0}, groups[1]])),
        ("group 0 has 2 params, the optimizer's 1", params, changed(param_groups=[groups[0] | {"params": [0, 1]}] * 2)),
        (r"group 1 has other options than the optimizer's: \['x'\]", params,
         changed(param_groups=[groups[0], groups[1] | {"x": 1}])),
        ("group 1 needs 1 of them", {"w": params["w"]}, good),
        ("has 3 tensors, the groups 2", params | {"x": sf.zeros(1)}, good),
        ("by the numbers in 'params', found 7: dict", params, changed(state={7: {}})),
        ("found 0: int", params, changed(state={0: 1})),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=text):
            with swap_in_optimizer_params_and_state(optimizer, tensors, state):
                raise AssertionError("entered")
    with pytest.raises(RuntimeError, match="no state yet"):
        with swap_in_optimizer_params_and_state(AdamW(list(params.values())), params, good):
            pass
    step(params, optimizer)
    assert values(params) == values(stepped(3)[0])
