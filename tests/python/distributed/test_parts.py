"""The same bits for any number of processes."""

import pytest
from processes import together

import scaffolding as sf
from scaffolding import distributed as dist
from scaffolding import nn

TRAINING = """
dist.init_process_group(timeout=60)
import hashlib


class Net(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.drop, self.out = nn.Dropout(0.3), nn.Linear(8 * 36, 4)
        self.to(dtype)

    def forward(self, x):
        h = nn.functional.gelu(self.norm(self.conv(x)))
        tokens = h.flatten(2).transpose(1, 2)
        h = self.drop(h + self.attend(tokens, tokens, tokens)[0].transpose(1, 2).reshape(h.shape))
        return self.out(h.flatten(1))


digests = []
for dtype in (sf.float32, sf.bfloat16):
    sf.manual_seed(5)
    x, y = sf.randn(8, 4, 3, 6, 6).to(dtype), sf.randint(0, 4, (8, 4))
    model = nn.parallel.DistributedDataParallel(Net(dtype), bucket_cap_mb=0.002)
    ema = sf.optim.swa_utils.AveragedModel(model.module, multi_avg_fn=sf.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = sf.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(6):
        for part in model.parts(8):
            nn.functional.cross_entropy(model(x[(part + step) % 8]).float(), y[(part + step) % 8]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        ema.update_parameters(model.module)
        if step == 2:      # as after a restart
            state = model.parts_state_dict()
            model.load_parts_state_dict(state)
    values = [*model.state_dict().values(), *ema.state_dict().values(), *state["random"].values()]
    assert len(state["random"]) == 8
    digests.append(hashlib.sha256(b"".join(v.float().numpy().tobytes() for v in values)).hexdigest())
dist.barrier()
print(*digests)
"""


def test_one_to_eight_processes_end_with_the_same_bits():
    outputs = [out for size in (1, 2, 4, 8) for out in together(TRAINING, size=size, timeout=300)]
    assert len(outputs) == 15 and len(set(outputs)) == 1, outputs
    assert len(set(outputs[0].split())) == 2


def test_the_mean_is_that_of_the_whole_batch():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        model, alone = DistributedDataParallel(plain()), plain()
        for _ in range(2):
            for part in model.parts(4):
                rows = slice(part * 6, part * 6 + 6)
                nn.functional.cross_entropy(model(X[rows]), Y[rows]).backward()
            alone.zero_grad()
            nn.functional.cross_entropy(alone(X), Y).backward()
            assert close([p.grad for p in model.parameters()], [p.grad for p in alone.parameters()])
        dist.barrier()
        print("ok")
        """
    )
    assert outputs == ["ok", "ok"]


def test_threads_that_differ_are_refused():
    outputs = together(
        """
        dist.init_process_group(timeout=60)
        sf.set_num_threads(1 + dist.get_rank())
        model = DistributedDataParallel(plain())
        try:
            model._parts_of(4)
        except RuntimeError as e:
            print(e)
        """
    )
    assert "rank 0 has 1, this one 2; call set_num_threads in all" in outputs[1]


def test_numbers_that_do_not_divide():
    dist.init_process_group("fake", rank=0, world_size=6)
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        with pytest.raises(ValueError, match="count must be a power of two, got 6"):
            next(model.parts(6))
        with pytest.raises(ValueError, match="8 parts need 1, 2, 4, ... 8 processes, got 6"):
            next(model.parts(8))
    finally:
        dist.destroy_process_group()
    assert sf.is_grad_enabled()
