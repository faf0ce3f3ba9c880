#!/usr/bin/env python3
"""Exports PyTorch networks to ONNX for Cuvil's benchmarks.

    export.py --model resnet50 --batch 1 --batch 32 --out DIR

writes, for every batch and exporter,

    DIR/resnet50_b1_torchscript.onnx    torch.onnx.export(dynamo=False)
    DIR/resnet50_b1_dynamo.onnx         torch.onnx.export(dynamo=True)
    DIR/resnet50_b1_input.npy           the input, float32
    DIR/resnet50_b1_output.npy          what PyTorch makes of it, on the CPU

Weights are random by seed, with no download.  So that activations stay in the
range of fp16, the last BatchNorm of each residual branch gets a scale in
0.2..0.5, and the running statistics are taken from the network itself by a few
passes in training mode.

Needs torch, torchvision and, for the dynamo exporter, onnxscript.  A network is
added by one line in MODELS.
"""

import argparse
import os
import sys

import numpy as np
import torch
import torchvision

# name: (constructor, input shape without the batch)
MODELS = {
    "resnet18": (torchvision.models.resnet18, (3, 224, 224)),
    "resnet50": (torchvision.models.resnet50, (3, 224, 224)),
    "mobilenet_v2": (torchvision.models.mobilenet_v2, (3, 224, 224)),
    "vgg16": (torchvision.models.vgg16, (3, 224, 224)),
}
DEFAULT_OPSET = {"torchscript": 17, "dynamo": 18}


def damp_residual_branches(model, generator):
    """Scales the last BatchNorm of every residual branch to 0.2..0.5."""
    last = {
        torchvision.models.resnet.BasicBlock: "bn2",
        torchvision.models.resnet.Bottleneck: "bn3",
    }
    for module in model.modules():
        name = last.get(type(module))
        if name is not None:
            weight = getattr(module, name).weight
            with torch.no_grad():
                scale = torch.rand(weight.shape, generator=generator)
                weight.copy_(0.2 + 0.3 * scale)


def settle_statistics(model, shape, generator, passes=3, batch=8):
    """Gives every BatchNorm the statistics of what it really sees."""
    norms = [
        m
        for m in model.modules()
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
    ]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # a plain average over the passes
    model.train()
    with torch.no_grad():
        for _ in range(passes):
            model(torch.randn((batch, *shape), generator=generator))
    for m, momentum in zip(norms, momenta):
        m.momentum = momentum


def make_model(name, seed):
    """The network in evaluation mode, the same for the same seed."""
    constructor, shape = MODELS[name]
    torch.manual_seed(seed)
    model = constructor(weights=None)
    generator = torch.Generator().manual_seed(seed)
    damp_residual_branches(model, generator)
    settle_statistics(model, shape, generator)
    model.eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model, shape


def export(model, example, path, exporter, opset, dynamic, external):
    """Writes one file; `example` fixes the shape unless `dynamic`."""
    common = {
        "input_names": ["input"],
        "output_names": ["output"],
        "opset_version": opset,
    }
    if exporter == "torchscript":
        if dynamic:
            common["dynamic_axes"] = {"input": {0: "N"}, "output": {0: "N"}}
        torch.onnx.export(model, (example,), path, dynamo=False, **common)
        return
    if dynamic:
        common["dynamic_shapes"] = ({0: torch.export.Dim("N", min=1)},)
    torch.onnx.export(
        model, (example,), path, dynamo=True, external_data=external, **common
    )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet50")
    parser.add_argument(
        "--exporter", choices=["torchscript", "dynamo", "both"], default="both"
    )
    parser.add_argument(
        "--batch",
        type=int,
        action="append",
        help="may be given several times (default: 1)",
    )
    parser.add_argument(
        "--opset", type=int, help="default: 17 for torchscript, 18 for dynamo"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--dynamic", action="store_true", help="leave the batch symbolic"
    )
    parser.add_argument(
        "--external",
        action="store_true",
        help="dynamo only: weights in a file beside the model",
    )
    parser.add_argument("--out", default=".", help="folder to write to")
    arguments = parser.parse_args()
    arguments.batch = arguments.batch or [1]
    if min(arguments.batch) < 1:
        parser.error("--batch must be at least 1")
    if arguments.dynamic and min(arguments.batch) < 2:
        # torch.export takes an extent of 1 in the example for a constant.
        parser.error("--dynamic needs --batch 2 or more as the example")
    return arguments


def main():
    arguments = parse_arguments()
    os.makedirs(arguments.out, exist_ok=True)
    model, shape = make_model(arguments.model, arguments.seed)
    exporters = (
        ["torchscript", "dynamo"]
        if arguments.exporter == "both"
        else [arguments.exporter]
    )
    for batch in arguments.batch:
        stem = os.path.join(arguments.out, f"{arguments.model}_b{batch}")
        rng = np.random.default_rng(arguments.seed + batch)
        data = rng.standard_normal((batch, *shape), dtype=np.float32)
        example = torch.from_numpy(data)
        with torch.no_grad():
            output = model(example).numpy()
        if not np.isfinite(output).all():
            sys.exit("export.py: the network's output is not finite")
        np.save(f"{stem}_input.npy", data)
        np.save(f"{stem}_output.npy", output)
        for exporter in exporters:
            path = f"{stem}_{exporter}.onnx"
            opset = arguments.opset or DEFAULT_OPSET[exporter]
            export(
                model,
                example,
                path,
                exporter,
                opset,
                arguments.dynamic,
                arguments.external,
            )
            print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
