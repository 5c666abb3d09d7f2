"""DistributedDataParallel beside torch's on Gloo: the trainings of tests/golden/ddp_cases.py."""

import json
import pathlib

from packed import read_json
from processes import together

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"


def test_gradients_and_losses_are_torchs():
    outputs = together(
        f"""
        import json, sys
        sys.path.append({str(GOLDEN)!r})
        from ddp_cases import CASES, train
        from scaffolding.distributed.algorithms.ddp_comm_hooks import default_hooks
        dist.init_process_group("gloo", timeout=60)
        print(json.dumps({{name: train(sf, DistributedDataParallel, default_hooks, dist.get_rank(), name)
                           for name in CASES}}))
        dist.barrier()
        """,
        timeout=400,
    )
    for rank, (golden, out) in enumerate(zip(read_json(GOLDEN / "ddp.json.xz"), outputs)):
        ours = json.loads(out)
        assert list(ours) == list(golden)
        for name, case in golden.items():
            for key, wanted in case.get("gradients", {}).items():
                got = ours[name]["gradients"][key]
                largest = max(map(abs, wanted), default=0)
                half = 1e-3 if "float16" in name else 1e-6
                assert len(got) == len(wanted), (name, key)
                assert all(abs(a - b) <= half * max(abs(b), largest) for a, b in zip(got, wanted)), (name, key, got)
            worst = max(abs(a - b) / abs(b) for a, b in zip(ours[name]["losses"], case["losses"]))
            print(f"rank {rank} {name}: losses within {worst:.1e}")
            assert len(case["losses"]) == 200 and worst <= 1e-4, (rank, name, worst)
