"""Write a folder that runs on a machine with an NVIDIA GPU, NumPy and numba-cuda, and nothing else of fusesolve.

    python benchmarks/gpu_prepare.py -o FOLDER [--hw PROFILE] [GRAPH...]
    python FOLDER/run.py FOLDER -o result.json        # there

Plans the graphs (without any: a representative set of bundled ones) with every contraction generated, and writes their
kernels at shrunk and full extents, arrays with wanted results, and predictions. `run.py` checks first, then times.
"""

import argparse
import shutil
from pathlib import Path

from fusesolve import plan
from fusesolve.codegen import device
from fusesolve.hardware_yaml import load_profile
from fusesolve.validate.cuda import prepare_folder
from fusesolve.validate.ladder import plan_graph

GRAPHS = ("softmax", "layer_norm", "rms_norm", "gelu_mlp", "gpt2_block", "resnet50_bottleneck", "unet_up_block")


def main() -> None:
    """Plan and write."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("graphs", nargs="*", default=GRAPHS)
    options.add_argument("-o", "--output", type=Path, required=True)
    options.add_argument("--hw", default="h200")
    chosen = options.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    profile = load_profile(chosen.hw)
    jobs = []
    for name in chosen.graphs:
        document = plan(name, profile, implementation="generated").to_dict()
        jobs.append((Path(name).stem, document, plan_graph(document), profile))
        print(f"{name}: {len(document['groups'])} groups, {document['objective_ns'] / 1e3:.1f} us predicted")
    for name, groups in prepare_folder(chosen.output, jobs).items():
        print(f"{name}: left out {groups}" if groups else f"{name}: all groups")
    shutil.copyfile(device.__file__, chosen.output / "run.py")
    size = sum(item.stat().st_size for item in chosen.output.iterdir())
    print(f"{chosen.output}: {size / 2**20:.1f} MiB; there: python run.py . -o result.json")


if __name__ == "__main__":
    main()
