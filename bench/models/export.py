#!/usr/bin/env python3
"""Exports PyTorch networks to ONNX for Cuvil's benchmarks.

    export.py --model resnet50 --batch 1 --batch 32 --out DIR
    export.py --model bert_base --layers 2 --seq 32 --out DIR

writes, for every batch and exporter,

    DIR/resnet50_b1_torchscript.onnx    torch.onnx.export(dynamo=False)
    DIR/resnet50_b1_dynamo.onnx         torch.onnx.export(dynamo=True)
    DIR/resnet50_b1_input.npy           the input (BERT's mask: _input1.npy)
    DIR/resnet50_b1_output.npy          what PyTorch makes of it, on the CPU

Weights are random by seed, with no download.  So that activations stay in the
range of fp16, the last BatchNorm of each residual branch gets a scale in
0.2..0.5, and the running statistics are taken from the network itself by a few
passes in training mode.  Biases and the scales of norms of transformers, which
start as zeros and ones, get random values too, so that a lost one shows.

An exporter that fails is reported, the others go on, and the exit status is 1.
Needs torch, torchvision, for the dynamo exporter onnxscript, and for bert_base,
gpt2 and llama_block transformers.  A network is added by one entry in MODELS.
"""

import argparse
import os
import sys
import traceback

import numpy as np
import torch
import torchvision


class Family:
    """How to make a network and what it takes.

    make(options) gives the module, whose forward takes the inputs in order and
    gives one tensor; inputs(options, batch, rng) their arrays.
    """

    def __init__(self, make, inputs, names=("input",), output="output"):
        self.make, self.inputs, self.names = make, inputs, names
        self.output = output


def images(options, batch, rng):
    return [rng.standard_normal((batch, 3, 224, 224), dtype=np.float32)]


def vision(constructor):
    return Family(lambda options: constructor(weights=None), images)


def make_vit(options):
    # The fused operator of eager mode has no ONNX spelling.
    torch.backends.mha.set_fastpath_enabled(False)
    if options.layers is None:
        return torchvision.models.vit_b_16(weights=None)
    return torchvision.models.VisionTransformer(
        image_size=224,
        patch_size=16,
        num_layers=options.layers,
        num_heads=12,
        hidden_dim=768,
        mlp_dim=3072,
    )


class HiddenState(torch.nn.Module):
    """A transformers model as a function of tensors to its last hidden state."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        named = dict(zip(self.names, inputs))
        return self.model(**named, return_dict=False)[0]


def transformer(model, config, names, options, layers_key, **settings):
    import transformers
    from transformers import masking_utils

    # One sequence a row: the search for several would be traced into the file
    # (and aten::diff, which it needs, is unknown to the older exporter).
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    if options.layers is not None:
        settings[layers_key] = options.layers
    settings["attn_implementation"] = options.attention
    network = getattr(transformers, model)(
        getattr(transformers, config)(**settings),
        **({"add_pooling_layer": False} if model == "BertModel" else {}),
    )
    return HiddenState(network, names)


def repeat_heads():
    """Grouped queries as repeated heads, which the older exporter can write."""
    from transformers.integrations import sdpa_attention

    sdpa_attention.use_gqa_in_sdpa = lambda *arguments: False


def make_bert(options):
    names = BERT_NAMES if options.mask else BERT_NAMES[:1]
    return transformer(
        "BertModel", "BertConfig", names, options, "num_hidden_layers"
    )


def make_gpt2(options):
    return transformer(
        "GPT2Model",
        "GPT2Config",
        ("input_ids",),
        options,
        "n_layer",
        use_cache=False,
    )


def make_llama(options):
    class Block(HiddenState):
        def forward(self, hidden):
            return self.model(
                inputs_embeds=hidden, return_dict=False, use_cache=False
            )[0]

    settings = {"num_hidden_layers": 2, "vocab_size": 32}
    settings.update(hidden_size=2048, intermediate_size=5632)
    settings.update(num_attention_heads=32, num_key_value_heads=8)
    model = transformer(
        "LlamaModel", "LlamaConfig", (), options, "num_hidden_layers", **settings
    )
    return Block(model.model, ())


BERT_NAMES = ("input_ids", "attention_mask")


def bert_inputs(options, batch, rng):
    seq = options.seq or 128
    ids = rng.integers(0, 30522, (batch, seq), dtype=np.int64)
    if not options.mask:
        return [ids]
    mask = np.ones((batch, seq), dtype=np.int64)
    mask[:, seq - seq // 4 :] = 0  # padding, so that the mask counts
    return [ids, mask]


def gpt2_inputs(options, batch, rng):
    return [rng.integers(0, 50257, (batch, options.seq or 512), dtype=np.int64)]


def llama_inputs(options, batch, rng):
    shape = (batch, options.seq or 512, 2048)
    return [rng.standard_normal(shape, dtype=np.float32)]


MODELS = {
    "resnet18": vision(torchvision.models.resnet18),
    "resnet50": vision(torchvision.models.resnet50),
    "mobilenet_v2": vision(torchvision.models.mobilenet_v2),
    "efficientnet_b0": vision(torchvision.models.efficientnet_b0),
    "vgg16": vision(torchvision.models.vgg16),
    "vit_b_16": Family(make_vit, images),
    "bert_base": Family(make_bert, bert_inputs, BERT_NAMES, "last_hidden_state"),
    "gpt2": Family(make_gpt2, gpt2_inputs, ("input_ids",), "last_hidden_state"),
    "llama_block": Family(make_llama, llama_inputs, ("hidden_states",)),
}
DEFAULT_OPSET = {"torchscript": 17, "dynamo": 18}


def damp_residual_branches(model, generator):
    """Scales the last BatchNorm of every residual branch to 0.2..0.5."""
    last = {
        torchvision.models.resnet.BasicBlock: "bn2",
        torchvision.models.resnet.Bottleneck: "bn3",
    }
    for module in model.modules():
        if isinstance(module, torchvision.models.efficientnet.MBConv):
            if module.use_res_connect:
                scale_norm(module.block[-1][1], generator)
        if isinstance(module, torchvision.models.mobilenetv2.InvertedResidual):
            if module.use_res_connect:
                scale_norm(module.conv[-1], generator)
        name = last.get(type(module))
        if name is not None:
            scale_norm(getattr(module, name), generator)


def scale_norm(norm, generator):
    with torch.no_grad():
        scale = torch.rand(norm.weight.shape, generator=generator)
        norm.weight.copy_(0.2 + 0.3 * scale)


def stir_vectors(model, generator):
    """Moves biases and norms' scales off the zeros and ones they start as, and
    gives a head that starts as zeros (ViT's) weights."""
    if any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules()):
        return
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.05 * noise)
            elif not parameter.any():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(0.02 * noise)


def settle_statistics(model, generator, passes=3, batch=8):
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
            model(torch.randn((batch, 3, 224, 224), generator=generator))
    for m, momentum in zip(norms, momenta):
        m.momentum = momentum


def make_model(name, options):
    """The network in evaluation mode, the same for the same seed."""
    torch.manual_seed(options.seed)
    model = MODELS[name].make(options)
    generator = torch.Generator().manual_seed(options.seed)
    damp_residual_branches(model, generator)
    stir_vectors(model, generator)
    settle_statistics(model, generator)
    model.eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def export(model, examples, names, output, path, exporter, arguments):
    """Writes one file; `examples` fix the shapes unless --dynamic."""
    common = {
        "input_names": list(names),
        "output_names": [output],
        "opset_version": arguments.opset or DEFAULT_OPSET[exporter],
    }
    if exporter == "torchscript":
        if isinstance(model, HiddenState):
            repeat_heads()
        if arguments.dynamic:
            axes = {name: {0: "N"} for name in (*names, output)}
            common["dynamic_axes"] = axes
        torch.onnx.export(model, examples, path, dynamo=False, **common)
        return
    if arguments.dynamic:
        dimension = torch.export.Dim("N", min=1)
        shapes = tuple({0: dimension} for _ in names)
        star = isinstance(model, HiddenState) and model.names
        common["dynamic_shapes"] = (shapes,) if star else shapes
    torch.onnx.export(
        model,
        examples,
        path,
        dynamo=True,
        external_data=arguments.external,
        **common,
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
        "--layers", type=int, help="transformers: this many (default: all)"
    )
    parser.add_argument(
        "--seq",
        type=int,
        help="tokens (default: bert_base 128, gpt2 and llama_block 512)",
    )
    parser.add_argument(
        "--mask", action="store_true", help="bert_base takes an attention mask"
    )
    parser.add_argument(
        "--attention",
        choices=["sdpa", "eager"],
        default="sdpa",
        help="how bert_base, gpt2 and llama_block spell it (default: sdpa)",
    )
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
    family = MODELS[arguments.model]
    model = make_model(arguments.model, arguments)
    exporters = (
        ["dynamo", "torchscript"]  # in this order: see repeat_heads
        if arguments.exporter == "both"
        else [arguments.exporter]
    )
    failed = []
    for batch in arguments.batch:
        stem = os.path.join(arguments.out, f"{arguments.model}_b{batch}")
        rng = np.random.default_rng(arguments.seed + batch)
        data = family.inputs(arguments, batch, rng)
        examples = tuple(torch.from_numpy(array) for array in data)
        with torch.no_grad():
            output = model(*examples).numpy()
        if not np.isfinite(output).all():
            sys.exit("export.py: the network's output is not finite")
        for i, array in enumerate(data):
            np.save(f"{stem}_input{i or ''}.npy", array)
        np.save(f"{stem}_output.npy", output)
        for exporter in exporters:
            path = f"{stem}_{exporter}.onnx"
            names = family.names[: len(data)]
            try:
                export(
                    model,
                    examples,
                    names,
                    family.output,
                    path,
                    exporter,
                    arguments,
                )
            except Exception:  # exporters raise anything; the rest goes on
                traceback.print_exc(limit=-3)
                failed.append(path)
                continue
            print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB", flush=True)
    if failed:
        sys.exit("export.py: not written: " + ", ".join(failed))


if __name__ == "__main__":
    main()
