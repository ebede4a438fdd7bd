"""What `--help` shows beside the flags: verbs in groups, and commands as examples."""

from __future__ import annotations

from cyclopts import Group

from tilewright.core.plugins import offered_names

FASTER = Group("Make a network faster", sort_key=0)
TIMES = Group("See where its time goes", sort_key=1)
FORECASTS = Group("Predict before it runs", sort_key=2)
EXPERIMENTS = Group("Experiments", sort_key=3)
RECORDS = Group("The machine and its records", sort_key=4)
GENERAL = Group("Help", sort_key=5)

EXAMPLES: dict[str, tuple[str, ...]] = {
    "optimize": (
        "tilewright optimize network.onnx --budget 10m",
        "tilewright optimize zoo:resnet50 --batch 8 --budget 1h30m --out fast",
        "tilewright optimize zoo:vgg16 --max-error 2e-6",
    ),
    "tune": (
        "tilewright tune network.onnx --tuner droplet --budget 500",
        "tilewright tune zoo:resnet18 --level graph --solver exact --save-problem problem.json",
        "tilewright tune zoo:resnet18 --target rpc:board --tracker localhost:9190",
        "tilewright tune zoo:resnet18 --threads 1 --beside stream",
    ),
    "run": (
        "tilewright run tilewright-out/network --input x.npy",
        "tilewright run tilewright-out/network --input image=x.npy --input mask=m.npy",
        "tilewright run plan --input x.npy --limit 5m",
    ),
    "serve": (
        "tilewright serve tilewright-out/resnet18 tilewright-out/mobilenet_v2",
        "tilewright serve tilewright-out/resnet18 --instances 2x1 --load 10s --deadline 20ms",
        "tilewright serve tilewright-out/encoder --batches 1,4 --load 10s",
        "tilewright serve n=x86 n=arm --devices llvm --devices rpc:pi --tracker pi:9190",
    ),
    "profile": (
        "tilewright profile network.onnx",
        "tilewright profile tilewright-out/network --memory --power",
        "tilewright profile zoo:resnet50 --settings default --format csv",
    ),
    "compare": (
        "tilewright compare network.onnx",
        "tilewright compare tilewright-out/resnet18 zoo:mlp --peers onnxruntime,openvino",
        "tilewright compare network.onnx --baseline old.json --fail-below 0.95",
    ),
    "show": (
        "tilewright show 'op:conv2d[c=64,h=56,out=64,k=3,pad=1]'",
        "tilewright show conv2d-1b92700d527fc678 --tir",
        "tilewright show op:relu[shape=1x64x56x56] --asm --threads 1",
    ),
    "explain": (
        "tilewright explain 'op:conv2d[c=64,h=56,out=64,k=3,pad=1]'",
        "tilewright explain 'op:dense[k=512,n=1000]' --versus 'op:dense[k=512,n=1024]'",
        "tilewright explain zoo:resnet18 --threads",
    ),
    "predict": (
        "tilewright predict zoo:resnet50",
        "tilewright predict network.onnx --metric latency,memory --settings best",
        "tilewright predict --table operators.csv --format csv",
    ),
    "collect": (
        "tilewright collect --op conv2d --samples 200",
        "tilewright collect --op dense --op softmax --threads 1,2 --budget 30m",
        "tilewright collect zoo:resnet50 --power",
    ),
    "fit": ("tilewright fit", "tilewright fit conv2d dense --metric latency"),
    "evaluate": (
        "tilewright evaluate --family conv2d --split network --out cards",
        "tilewright evaluate --table times.csv --family linear --split device --specs devices.json",
    ),
    "solve": (
        "tilewright solve problem.json",
        "tilewright solve problem.json --solver exact --format json",
    ),
    "plan": (
        "tilewright plan zoo:googlenet --devices llvm --devices 'cuda -model=H100' --out plan",
        "tilewright plan zoo:resnet18 zoo:mobilenet_v2 --objective throughput",
        "tilewright plan zoo:googlenet --time-calls --out plan",
        "tilewright plan zoo:googlenet --precision bfloat16 --out plan",
        "tilewright plan problem.json --planner heft --format json",
        "tilewright plan towers.json --front energy",
        "tilewright plan zoo:squeezenet1_1 --devices '8*cuda -model=H100' --objective throughput",
        "tilewright plan zoo:squeezenet1_1 --devices llvm --table npu=npu.json",
    ),
    "simulate": (
        "tilewright simulate plan --upper",
        "tilewright simulate plan --slower llvm=1.5 --out slower",
    ),
    "study tuners": ("tilewright study tuners --tuner default --tuner random --out out",),
    "study subgraph": ("tilewright study subgraph zoo:resnet18 --budget 10m",),
    "study padding": (
        "tilewright study padding 'op:conv2d[c=64,h=56,out=64,k=3,pad=1]'",
        "tilewright study padding 'op:conv2d[c=64,h=56,out=64,k=3]' --parameter c --values 64,72",
        "tilewright study padding 'op:conv2d[c=3,h=225,k=3,out=32]' --layout NHWC "
        "--target 'cuda -model=H100'",
    ),
    "study cores": (
        "tilewright study cores 'op:conv2d[c=64,h=56,out=64,k=3,pad=1]'",
        "tilewright study cores zoo:resnet50 --cores 1,2,4,8,16,32,64 --budget 0",
        "tilewright study cores 'op:softmax[shape=64x1000]' --beside none --beside streamx2",
    ),
    "doctor": ("tilewright doctor", "tilewright doctor --format json"),
    "targets": ("tilewright targets",),
    "db info": ("tilewright db info", "tilewright db info --db other.db"),
    "db export": (
        "tilewright db export all.parquet",
        "tilewright db export log.json --kind autotvm",
    ),
    "db import": (
        "tilewright db import all.jsonl",
        "tilewright db import cache.t4 --task conv2d-1b92700d527fc678 --target llvm",
    ),
    "db merge": (
        "tilewright db merge mine.db theirs.db",
        "tilewright db merge mine.db theirs.jsonl --into both.db",
    ),
    "db gc": ("tilewright db gc", "tilewright db gc --failures-older-than 720h"),
}
"""By verb; what stands for a file or a key is made up, all else works as it is written."""


_METERED, _PLANNING = ("profile", "collect"), ("tilewright.solvers", "tilewright.planners")
OFFERED: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("--meter", _METERED, ("tilewright.meters",)),
    ("--peers", ("compare",), ("tilewright.peers",)),
    ("--tuner", ("tune",), ("tilewright.tuners",)),
    ("--solver", ("tune",), _PLANNING),
    ("--solver", ("solve",), _PLANNING[:1]),
    ("--planner", ("plan",), ("tilewright.schedulers",)),
)
"""Flags whose values other packages add: the verbs that have them, the groups of entry points."""


def examples(verb: str) -> str:
    """The last part of a verb's help."""
    return "\n".join(["Examples:", *(f"  {line}" for line in EXAMPLES[verb])])


def from_packages(verb: str) -> str:
    """What other packages add to a verb's flags, a line for each; empty for nothing."""
    added = [
        f"  {flag} {', '.join(names)}"
        for flag, verbs, groups in OFFERED
        if verb in verbs and (names := offered_names(*groups))
    ]
    return "\n".join(["From other packages:", *added, ""]) if added else ""
