"""Networks that are trained, as modules of PyTorch: the layers of torchvision's, without dropout."""

from __future__ import annotations

import importlib
from typing import Any

NETWORKS = {"resnet18": 64, "alexnet": 128, "resnet50": 64, "mobilenet_v2": 64}  # pictures of a batch
CLASSES = 1000
_MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def network(name: str) -> Any:
    """A network of 1000 classes, or of 10 digits, in training mode, with random weights that are the same each time."""
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(0)
    layers = {
        "alexnet": _alexnet,
        "resnet18": lambda torch: _resnet(torch, (2, 2, 2, 2), 1),
        "resnet50": lambda torch: _resnet(torch, (3, 4, 6, 3), 4),
        "mobilenet_v2": _mobilenet,
        "digits": _digits,
    }
    return layers[name](torch).train()


def _alexnet(torch: Any) -> Any:
    nn = torch.nn
    convolutions = (
        (3, 64, 11, 4, 2),
        (64, 192, 5, 1, 2),
        (192, 384, 3, 1, 1),
        (384, 256, 3, 1, 1),
        (256, 256, 3, 1, 1),
    )
    layers = list[Any]()
    for k, (c, filters, size, stride, pad) in enumerate(convolutions):
        layers += [nn.Conv2d(c, filters, size, stride, pad), nn.ReLU()]
        layers += [nn.MaxPool2d(3, 2)] if k in (0, 1, 4) else []
    dense = [nn.Linear(9216, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, CLASSES)]
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def _resnet(torch: Any, depths: tuple[int, ...], wider: int) -> Any:
    nn, channels = torch.nn, 64
    layers = [*_convolution(nn, 3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for stage, depth in enumerate(depths):
        for k in range(depth):
            stride, width = (2 if stage and not k else 1), 64 << stage
            if wider > 1:
                body = [*_convolution(nn, channels, width, 1), nn.ReLU(), *_convolution(nn, width, width, 3, stride)]
                body += [nn.ReLU(), *_convolution(nn, width, wider * width, 1)]
            else:
                body = [*_convolution(nn, channels, width, 3, stride), nn.ReLU(), *_convolution(nn, width, width, 3)]
            short = (
                []
                if stride == 1 and channels == wider * width
                else _convolution(nn, channels, wider * width, 1, stride)
            )
            layers += [_added(torch, nn.Sequential(*body), nn.Sequential(*short)), nn.ReLU()]
            channels = wider * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def _mobilenet(torch: Any) -> Any:
    nn, channels = torch.nn, 32
    layers = [*_convolution(nn, 3, 32, 3, 2), nn.ReLU6()]
    for wider, filters, count, first in _MOBILE:
        for k in range(count):
            inner, stride = wider * channels, first if k == 0 else 1
            body = [*_convolution(nn, channels, inner, 1), nn.ReLU6()] if wider > 1 else []
            body += [*_convolution(nn, inner, inner, 3, stride, groups=inner), nn.ReLU6()]
            body += _convolution(nn, inner, filters, 1)
            same = stride == 1 and channels == filters
            layers += [_added(torch, nn.Sequential(*body), nn.Sequential())] if same else body
            channels = filters
    layers += [*_convolution(nn, channels, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, CLASSES))


def _digits(torch: Any) -> Any:
    """That of samples/digits.onnx, for pictures of 1 x 8 x 8."""
    nn = torch.nn
    layers = [*_convolution(nn, 1, 16, 3), nn.ReLU(), *_convolution(nn, 16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [_added(torch, nn.Sequential(*_convolution(nn, 32, 32, 3)), nn.Sequential()), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))


def _convolution(nn: Any, c: int, filters: int, size: int, stride: int = 1, groups: int = 1) -> list[Any]:
    conv = nn.Conv2d(c, filters, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(filters)]


def _added(torch: Any, body: Any, short: Any) -> Any:
    """The sum of two ways from the same value."""

    class Added(torch.nn.Module):  # type: ignore[misc]  # PyTorch is no dependency
        def __init__(self) -> None:
            super().__init__()
            self.body, self.short = body, short

        def forward(self, x: Any) -> Any:
            return self.body(x) + self.short(x)

    return Added()
