"""ResNet-18 (He et al. 2015), as one would write it against torch,
trained on made-up pictures whose class is the colour of a square.
"""

import torch
import torch.nn as nn


def conv3x3(inputs, outputs, stride=1):
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, outputs, stride=1, downsample=None):
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = downsample

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(
        self,
        block=BasicBlock,
        layers=(2, 2, 2, 2),
        num_classes=10,
        width=64,
        small_images=False,
        zero_init_residual=False,
    ):
        super().__init__()
        self.inputs = width
        if small_images:  # 32 x 32: no halving before the first block
            self.conv1 = conv3x3(3, width)
            self.maxpool = nn.Identity()
        else:
            self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self._make_layer(block, width, layers[0])
        self.layer2 = self._make_layer(block, 2 * width, layers[1], stride=2)
        self.layer3 = self._make_layer(block, 4 * width, layers[2], stride=2)
        self.layer4 = self._make_layer(block, 8 * width, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)
        if zero_init_residual:  # blocks begin as the identity (Goyal et al. 2017)
            for module in self.modules():
                if isinstance(module, BasicBlock):
                    nn.init.constant_(module.bn2.weight, 0)

    def _make_layer(self, block, outputs, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inputs != outputs * block.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inputs, outputs * block.expansion, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(outputs * block.expansion),
            )
        layers = [block(self.inputs, outputs, stride, downsample)]
        self.inputs = outputs * block.expansion
        layers += [block(self.inputs, outputs) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def pictures(count, size):
    """Noise with a bright square in one of ten tints, which is the class."""
    x, y = torch.randn(count, 3, size, size) * 0.3, torch.randint(0, 10, (count,))
    tints = torch.linspace(-1, 1, 30).reshape(10, 3)
    for i in range(count):
        row, column = torch.randint(0, size // 2, (2,)).tolist()
        x[i, :, row : row + size // 2, column : column + size // 2] += tints[y[i]][:, None, None]
    return x, y


def main(steps=20, batch=8, size=64, width=32):
    torch.manual_seed(7)
    model = ResNet(width=width, zero_init_residual=True)
    start = {name: t.double().abs().sum().item() for name, t in model.state_dict().items()}
    images, labels = pictures(4 * batch, size)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    losses = []
    model.train()
    for step in range(steps):
        chosen = slice(step % 4 * batch, (step % 4 + 1) * batch)
        optimizer.zero_grad()
        loss = criterion(model(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        logits = model(images[:batch])
    accuracy = (logits.argmax(dim=1) == labels[:batch]).float().mean().item()
    batches = model.bn1.num_batches_tracked.item()
    return {
        "start": start,
        "losses": losses,
        "logits": logits[0].tolist(),
        "accuracy": accuracy,
        "batches": batches,
        "rate": schedule.get_last_lr()[0],
    }


if __name__ == "__main__":
    print(main())
