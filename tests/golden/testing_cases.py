"""Calls of testing.assert_close, of torch or of this library: [(actual, expected, options)]."""

nan, inf = float("nan"), float("inf")


def cases(torch):
    def t(*args, **kwargs):
        return torch.tensor(*args, **kwargs)

    one, two = t([1.0]), t([2.0])
    return [
        (t([1.0, 2.0, 3.0]), t([1.0, 2.0, 4.0]), {}),
        (t([1.0, 2.0, 3.0]), t([1.0, 2.0, 3.0 + 1e-6]), {}),
        (t([1.0, nan]), t([1.0, nan]), {}),
        (t([1.0, nan]), t([1.0, nan]), {"equal_nan": True}),
        (t([1, 2]), t([1, 3]), {}),
        (t([1, 2, 9]), t([1, 4, 2]), {"rtol": 0.1, "atol": 1.5}),
        (t([1, 2], dtype=torch.uint8), t([2, 1], dtype=torch.uint8), {}),
        (one, one.double(), {}),
        (one, one.double(), {"check_dtype": False}),
        (t([1]), one, {"check_dtype": False}),
        (t([inf, 1.0]), t([inf, 1.0]), {}),
        (t([inf, 1.0]), t([inf, 2.0]), {}),
        (t([inf, 1.0]), t([1.0, 1.0]), {}),
        (t([]), t([]), {}),
        (t(1.0), t(2.0), {}),
        (t([True, False]), t([True, True]), {}),
        (t([1.0, 2.0]), t([1.0, 2.0, 3.0]), {}),
        (t([[1.0, 2.0]]).t(), t([[1.0], [2.0]]), {}),
        (t([[1.0, 2.0], [3.0, 4.0]]).t(), t([[1.0, 3.0], [2.0, 4.0]]), {"check_stride": True}),
        (t([[1.0, 2.0], [3.0, 4.0]]), t([[1.0, 2.0], [8.0, 0.0]]), {}),
        (one.half(), t([1.0009]).half(), {}),
        (one.half(), t([1.002]).half(), {}),
        (one.bfloat16(), t([1.01]).bfloat16(), {}),
        (one.double(), t([1.0 + 1e-6]).double(), {}),
        (one, two, {"rtol": 0, "atol": 0}),
        (t([1.0, 5.0]), t([2.0, 5.1]), {"rtol": 0.1, "atol": 0.0}),
        (one, two, {"msg": "own"}),
        (one, two, {"msg": "own: {}".format}),
        ({"a": [1, t([1.0, 2.0])]}, {"a": [1, t([1.0, 2.5])]}, {}),
        ([one, [one, t([3.0])]], [one, [one, two]], {}),
        ([1, 2], [1], {}),
        ({"a": 1}, {"b": 1}, {}),
        (None, None, {}),
        (None, 1, {}),
        (True, True, {}),
        (True, False, {}),
        (1.0, 1.0 + 1e-9, {}),
        (1, 1.0, {"check_dtype": False}),
        (1.0, 1, {}),
        (1.0, 2.0, {}),
        (1, 2, {}),
        (2, 1, {"rtol": 0.5, "atol": 0.0}),
        (nan, nan, {}),
        (nan, nan, {"equal_nan": True}),
        (inf, inf, {}),
        (inf, 1.0, {}),
        (one, 1.0, {}),
        ("a", "a", {}),
        (one, two, {"rtol": 1.0}),
    ]


def verdicts(torch):
    """[name of the error, or None; its text, of an AssertionError alone: other texts are each library's own]."""
    found = []
    for actual, expected, options in cases(torch):
        try:
            torch.testing.assert_close(actual, expected, **options)
        except (AssertionError, TypeError, ValueError) as e:
            found.append([type(e).__name__, str(e) if isinstance(e, AssertionError) else ""])
        else:
            found.append([None, ""])
    return found
