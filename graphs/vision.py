"""Bundled parts of convolutional networks: ResNet, GoogLeNet, MobileNet, U-Net."""

from sheet import Sheet


def convolution(sheet: Sheet, name: str, x: str, channels: int, kernel: int, **attrs: int) -> str:
    """Square convolution without bias, padded to keep the extent; `group` and `stride` as attributes."""
    kind, depth = sheet.dtype(x), sheet.shape(x)[1] // attrs.get("group", 1)
    weight = sheet.weight(f"{name}_w", kind, channels, depth, kernel, kernel)
    return sheet.op(name, "conv2d", x, weight, pad=kernel // 2, **attrs)


def biased(sheet: Sheet, name: str, x: str, channels: int, kernel: int, **attrs: int) -> str:
    """Convolution and the bias into which a batch norm was folded; the bias is the operator `<name>_bias`."""
    y = convolution(sheet, name, x, channels, kernel, **attrs)
    return sheet.op(f"{name}_bias", "add", y, sheet.weight(f"{name}_b", sheet.dtype(x), channels, 1, 1))


def batch_norm(sheet: Sheet, name: str, x: str) -> str:
    """Batch norm in inference with its four parameters in f32."""
    channels = sheet.shape(x)[1]
    parameters = [sheet.weight(f"{name}_{part}", "f32", channels) for part in ("g", "b", "mean", "var")]
    return sheet.op(name, "batchnorm", x, *parameters, eps=1e-5)


def conv_bn_relu() -> Sheet:
    """The commonest chain of convolutional networks."""
    sheet = Sheet("conv_bn_relu", "Convolution, batch norm and ReLU of ResNet's second stage, f16, batch 32.")
    x = sheet.input("x", "f16", 32, 64, 56, 56)
    sheet.output(sheet.op("relu", "relu", batch_norm(sheet, "bn", convolution(sheet, "conv", x, 64, 3))))
    return sheet


def resnet50_bottleneck() -> Sheet:
    """An identity block of ResNet-50's second stage."""
    sheet = Sheet("resnet50_bottleneck", "Identity block of ResNet-50's second stage, f16, batch 32.")
    x = sheet.input("x", "f16", 32, 256, 56, 56)
    y = x
    for index, (channels, kernel) in enumerate(((64, 1), (64, 3), (256, 1)), start=1):
        y = batch_norm(sheet, f"bn{index}", convolution(sheet, f"conv{index}", y, channels, kernel))
        y = sheet.op(f"relu{index}", "relu", y) if index < 3 else sheet.op("res", "add", y, x)
    sheet.output(sheet.op("relu3", "relu", y))
    return sheet


def inception_branches() -> Sheet:
    """Inception module 3a of GoogLeNet: four branches on one input."""
    sheet = Sheet("inception_branches", "Inception module 3a of GoogLeNet, f16, batch 32: four branches, one concat.")
    x = sheet.input("x", "f16", 32, 192, 28, 28)

    def branch(name: str, start: str, *layers: tuple[int, int]) -> str:
        y = start
        for channels, kernel in layers:
            step = f"{name}_{kernel}x{kernel}"
            y = sheet.op(f"{step}_relu", "relu", biased(sheet, step, y, channels, kernel))
        return y

    pooled = sheet.op("pool", "maxpool", x, k=3, stride=1, pad=1)
    branches = (
        branch("b1", x, (64, 1)), branch("b2", x, (96, 1), (128, 3)), branch("b3", x, (16, 1), (32, 5)),
        branch("b4", pooled, (32, 1)),
    )  # fmt: skip
    sheet.output(sheet.op("joined", "concat", *branches, axis=1))
    return sheet


def mobilenet_inverted_residual() -> Sheet:
    """An inverted residual block of MobileNetV2 with its batch norms folded."""
    sheet = Sheet("mobilenet_inverted_residual", "Inverted residual block of MobileNetV2 at 56 x 56, f16, batch 16.")
    x = sheet.input("x", "f16", 16, 24, 56, 56)
    wide = sheet.op("expand_relu6", "clip", biased(sheet, "expand", x, 144, 1), min=0.0, max=6.0)
    deep = biased(sheet, "depthwise", wide, 144, 3, group=144)
    deep = sheet.op("depthwise_relu6", "clip", deep, min=0.0, max=6.0)
    sheet.output(sheet.op("res", "add", x, biased(sheet, "project", deep, 24, 1)))
    return sheet


def unet_up_block() -> Sheet:
    """Upsampling and the first residual block of the last stage of Stable Diffusion's U-Net."""
    sheet = Sheet("unet_up_block", "Upsampling and a residual block of Stable Diffusion 1.5's U-Net, f16, batch 2.")
    x, skip = sheet.input("x", "f16", 2, 640, 32, 32), sheet.input("skip", "f16", 2, 320, 64, 64)
    time = sheet.input("time", "f16", 2, 320, 1, 1)
    up = biased(sheet, "up_conv", sheet.op("up", "resize_nearest", x, to=(2, 640, 64, 64)), 640, 3)
    joined = sheet.op("joined", "concat", up, skip, axis=1)
    y = biased(sheet, "conv1", _norm_silu(sheet, "1", joined), 320, 3)
    y = biased(sheet, "conv2", _norm_silu(sheet, "2", sheet.op("timed", "add", y, time)), 320, 3)
    sheet.output(sheet.op("res", "add", y, biased(sheet, "shortcut", joined, 320, 1)))
    return sheet


def _norm_silu(sheet: Sheet, number: str, x: str) -> str:
    scale, bias = (sheet.weight(f"norm{number}_{part}", sheet.dtype(x), sheet.shape(x)[1]) for part in ("g", "b"))
    norm = sheet.op(f"norm{number}", "groupnorm", x, scale, bias, groups=32, eps=1e-5)
    return sheet.op(f"silu{number}", "silu", norm)
