"""Switches of the tape: context managers that are decorators too, for functions and generators."""

import functools

from .. import _core


class _Switch:
    """One object may be entered several times, also by nested calls of a decorated function."""

    def __init__(self):
        self._before = []

    def _state(self):
        raise NotImplementedError

    def __enter__(self):
        self._before.append(_core._set_mode(*self._state()))

    def __exit__(self, *_):
        _core._set_mode(*self._before.pop())

    def _again(self):
        return type(self)()

    def __call__(self, function):
        if not callable(function):
            raise TypeError(f"{type(self).__name__}: decorates functions, got {type(function).__name__}")
        if isinstance(function, type):
            raise TypeError(f"{type(self).__name__}: decorates functions, not classes; decorate the methods")
        if _is_generator_function(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def decorated(*args, **kwargs):
            with self._again():
                return function(*args, **kwargs)

        return decorated

    def _wrap_generator(self, function):
        # The mode holds while the generator's own code runs, not while it waits for its caller.
        @functools.wraps(function)
        def decorated(*args, **kwargs):
            generator = function(*args, **kwargs)
            try:
                with self._again():
                    value = generator.send(None)
                while True:
                    try:
                        request = yield value
                    except GeneratorExit:
                        with self._again():
                            generator.close()
                        raise
                    except BaseException as error:
                        with self._again():
                            value = generator.throw(error)
                    else:
                        with self._again():
                            value = generator.send(request)
            except StopIteration as stop:
                return stop.value

        return decorated


def _is_generator_function(function):
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & 0x20)  # CO_GENERATOR, without importing inspect


class _Mode(_Switch):
    def __new__(cls, function=None):
        # @no_grad without brackets decorates at once.
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self, function=None):
        super().__init__()


class no_grad(_Mode):
    """Ops in the block, or in function, are not recorded.

    >>> x = sf.ones(2, requires_grad=True)
    >>> with sf.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def _state(self):
        return False, _core.is_inference_mode_enabled()


class enable_grad(_Mode):
    """Ops in the block, or in function, are recorded, inside no_grad too.

    >>> x = sf.ones(2, requires_grad=True)
    >>> with sf.no_grad(), sf.enable_grad():
    ...     (2 * x).requires_grad
    True
    """

    def _state(self):
        return True, _core.is_inference_mode_enabled()


class inference_mode(_Switch):
    """As no_grad; tensors made in the block can never be recorded, which saves their bookkeeping. mode=False: changes
    nothing.

    >>> with sf.inference_mode():
    ...     y = nn.Linear(4, 2)(sf.ones(1, 4))
    >>> y.requires_grad, y.is_inference()
    (False, True)
    """

    def __new__(cls, mode=True):
        return cls()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode=True):
        super().__init__()
        self.mode = bool(mode)

    def _state(self):
        return (False, True) if self.mode else (_core.is_grad_enabled(), False)

    def _again(self):
        return inference_mode(self.mode)


class set_grad_enabled(_Switch):
    """Switches recording on (mode True) or off at once; as a context manager, back again at the end of the block.

    >>> with sf.set_grad_enabled(False):
    ...     nn.Linear(4, 2)(sf.ones(1, 4)).requires_grad
    False
    """

    def __init__(self, mode):
        super().__init__()
        self.mode = bool(mode)
        self._first = _core._set_grad_enabled(self.mode)
        self._entered = False

    def _state(self):
        return self.mode, _core.is_inference_mode_enabled()

    def __enter__(self):
        super().__enter__()
        if not self._entered:  # the state to come back to is the one before the call
            _, inference = self._before[-1]
            self._before[-1] = self._first, inference
            self._entered = True

    def __call__(self, function):
        _core._set_grad_enabled(self._first)  # used as a decorator: nothing was switched yet
        return super().__call__(function)

    def _again(self):
        return _SetGrad(self.mode)


class _SetGrad(_Switch):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def _state(self):
        return self.mode, _core.is_inference_mode_enabled()
