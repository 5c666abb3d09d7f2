"""diffusers' own tests of schedulers, with this package standing for torch and diffusers.

    PYTHONPATH=build/dev/python python tests/conformance/diffusers_schedulers.py CHECKOUT [-k EXPRESSION] [pytest ...]

CHECKOUT is a clone of github.com/huggingface/diffusers (0.36 to 0.42); its tests/schedulers are run where they are.
Prints how many pass, for the classes that are here and for those that are not, and what the others fail with. Fails
where a test of a class that is here fails that REFUSED does not name.
"""

import argparse
import collections
import contextlib
import importlib.abc
import importlib.machinery
import io
import logging
import pathlib
import re
import sys
import types

import pytest

import scaffolding as sf
import scaffolding.diffusion

# Tests of classes that are here which cannot pass, each with its reason.
HUB = "needs the hub"
REFUSED = {
    "SchedulerBaseTests::test_default_arguments_not_in_config": HUB,
    "SchedulerBaseTests::test_default_solver_type_after_switch": HUB,
    "SchedulerPushToHubTester::test_push_to_hub": HUB,
    "SchedulerPushToHubTester::test_push_to_hub_in_organization": HUB,
}
LOGGERS = {
    "diffusers.configuration_utils": "scaffolding.diffusion.configuration",
    "diffusers.schedulers.scheduling_utils": "scaffolding.diffusion.schedulers",
}


def module(name, **entries):
    made = types.ModuleType(name)
    made.__dict__.update(entries)
    made.__path__ = []
    sys.modules[name] = made
    return made


class Standing(types.ModuleType):
    """Another library's name for ours. A class that ours has not is one that refuses to be made."""

    __path__ = []

    def __init__(self, name, ours, **more):
        super().__init__(name)
        self.__dict__.update(ours=ours, **more)

    def __getattr__(self, name):
        if hasattr(self.ours, name):
            return getattr(self.ours, name)
        if name.startswith("__") or not name.endswith(("Scheduler", "SchedulerOutput")):
            raise AttributeError(name)
        missing = type(name, (), {"__init__": missing_class, "_deprecated_kwargs": []})
        self.__dict__[name] = missing
        return missing

    def __setattr__(self, name, value):
        setattr(self.ours, name, value)


def missing_class(self, *args, **kwargs):
    raise NotImplementedError(f"{type(self).__name__} is not here")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Submodules of diffusers, all of which have what diffusers itself has."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("diffusers."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Standing(spec.name, scaffolding.diffusion)

    def exec_module(self, module):
        pass


class CaptureLogger:
    """What a logger says within a with."""

    def __init__(self, logger):
        self.logger = logger

    def __enter__(self):
        self.text = io.StringIO()
        self.handler = logging.StreamHandler(self.text)
        self.logger.addHandler(self.handler)
        return self

    def __exit__(self, *error):
        self.logger.removeHandler(self.handler)
        self.out = self.text.getvalue()


def stand_in(checkout):
    def long_tensor(values):
        return sf.tensor(values, dtype=sf.int64)

    def assert_close(actual, expected, rtol=1.3e-6, atol=1e-5, **how):
        assert sf.allclose(actual, expected, rtol=rtol, atol=atol)

    torch = Standing("torch", sf, LongTensor=long_tensor, long=sf.int64)
    sys.modules["torch"] = torch
    torch.__dict__["testing"] = module("torch.testing", assert_close=assert_close)
    sys.modules["torch.nn"], sys.modules["torch.nn.functional"] = sf.nn, sf.nn.functional
    names = logging.getLogger
    diffusers_logging = module(
        "diffusers.utils.logging", get_logger=lambda name=None: names(LOGGERS.get(name, name)), INFO=logging.INFO
    )
    diffusers = Standing("diffusers", scaffolding.diffusion, logging=diffusers_logging, __version__="0.42.0")
    sys.modules["diffusers"] = diffusers
    diffusers.__dict__["utils"] = module("diffusers.utils", logging=diffusers_logging)
    sys.meta_path.insert(0, Finder())
    module("huggingface_hub", delete_repo=None)

    # The folder is diffusers', the modules beside it are not: they would import all of torch.
    tests = module("tests")
    tests.__path__ = [str(checkout / "tests")]
    module(
        "tests.testing_utils",
        CaptureLogger=CaptureLogger,
        torch_device="cpu",
        require_torchsde=lambda test: test,
    )
    module("tests.others")
    module("tests.others.test_utils", TOKEN=None, USER=None, is_staging_test=lambda test: test)


class Report:
    """Which tests passed, and what the others failed with."""

    def __init__(self):
        self.passed, self.failed = [], {}

    def pytest_collection_modifyitems(self, items):
        # The base class, which every file imports: of no scheduler, its tests pass whatever is there.
        items[:] = [item for item in items if item.cls is None or item.cls.__name__ != "SchedulerCommonTest"]

    def pytest_runtest_logreport(self, report):
        if report.skipped or (report.when != "call" and not report.failed):
            return
        name = report.nodeid.split("tests/schedulers/")[-1]
        if report.passed:
            self.passed.append(name)
        else:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed[name] = (crash.message if crash else str(report.longrepr)).splitlines()[0]


def classes_here(text):
    """Whether every scheduler that a file of tests is about is one of ours."""
    _, classes, line = text.partition("scheduler_classes = (")
    names = [name.strip() for name in line.partition(")")[0].split(",") if name.strip()]
    return bool(classes) and all(hasattr(scaffolding.diffusion, name) for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true", help="pytest's own output too")
    options, more = parser.parse_known_args()
    folder = options.checkout.resolve() / "tests" / "schedulers"
    if not (folder / "test_schedulers.py").is_file():
        parser.error(f"{folder} has no test_schedulers.py: CHECKOUT must be a clone of diffusers")
    here, elsewhere = [], []
    for path in sorted(folder.glob("test_*.py")):
        base = path.name == "test_schedulers.py"
        (here if base or classes_here(path.read_text()) else elsewhere).append(path.name)
    stand_in(options.checkout.resolve())
    report = Report()
    quiet = contextlib.nullcontext() if options.verbose else contextlib.redirect_stdout(io.StringIO())
    with quiet:
        # Its conftest.py asks for what is not here, and only adds options.
        how = ["-q", "--noconftest", "-p", "no:cacheprovider", "--rootdir", str(options.checkout), "-W", "ignore"]
        pytest.main([*how, str(folder), *more], plugins=[report])
    if not report.passed and not report.failed:
        print("no test was run")
        return 2

    def of(names, files):
        return [n for n in names if n.split("::")[0] in files]

    wrong = {n: why for n, why in report.failed.items() if n.split("::")[0] in here}
    unexpected = {n: why for n, why in wrong.items() if n.split("::", 1)[1] not in REFUSED}
    for name, why in unexpected.items():
        print(f"FAILED {name}: {why[:160]}")
    print("\nwhat they fail with:")
    kinds = (re.sub(r"'?\w+Scheduler'?|0x\w+|[\d.]+", "_", why)[:100] for why in unexpected.values())
    for why, count in collections.Counter(kinds).most_common():
        print(f"{count:4} {why}")
    passed = of(report.passed, here)
    print(f"classes here: {len(passed)} of {len(passed) + len(wrong)} pass, {len(wrong) - len(unexpected)} cannot")
    rest = [n for n in report.failed if n not in wrong]
    print(f"other classes: {len(of(report.passed, elsewhere))} of {len(rest) + len(of(report.passed, elsewhere))} pass")
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main())
