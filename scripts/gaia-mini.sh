#!/usr/bin/env bash
set -euo pipefail
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/_setup.sh"

usage() {
    cat <<'END'
usage: scripts/gaia-mini.sh [--seed N] [--backend docker|process] [--limit N] [--out FOLDER] [KEY=VALUE ...]

The whole way to a GAIA agent in miniature, from documents and tools to a better agent, on two cores without a GPU: makes
questions about files, has a solver play them with the tools of gaia-mcp-server, makes a model of 0.6 million parameters,
and trains it on what the solver did (recipes/gaia/files-cpu-sft), by rewards (files-cpu-rl), and by distillation
(files-cpu-distill). Each of the four models is evaluated on 200 questions about other documents, and compared.

Takes half an hour on two cores once the image of the tools is built. What is done is not done again: a run that was interrupted
goes on.

  --seed N       another model and other orders of the tasks, which stay the same
  --backend B    docker, or process: the tools are plain processes; docker where an engine answers, if not given
  --limit N      so many documents and questions, of which a seventh is held out; 1400 if not given
  --out FOLDER   where data, models and runs are; .cache/gaia-mini-BACKEND if not given
  KEY=VALUE      changes to all recipes, such as trainer.steps=4

Environment: as scripts/quickstart.sh --help says.
END
}

seed=0 backend="" limit=1400 out="" overrides=()
while (($#)); do
    case $1 in
        -h | --help) usage && exit ;;
        --seed) (($# > 1)) || die 2 "--seed needs a number."
            seed=$2 && shift ;;
        --backend) (($# > 1)) || die 2 "--backend needs a name: docker or process."
            backend=$2 && shift ;;
        --limit) (($# > 1)) || die 2 "--limit needs a number."
            limit=$2 && shift ;;
        --out) (($# > 1)) || die 2 "--out needs a folder."
            out=$2 && shift ;;
        *=*) overrides+=("$1") ;;
        *) die 2 "$1 is neither an option nor KEY=VALUE. See scripts/gaia-mini.sh --help." ;;
    esac
    shift
done
[[ $seed =~ ^[0-9]+$ ]] || die 2 "--seed needs a whole number, not '$seed'."
seed=$((10#$seed))
[[ $backend =~ ^(docker|process|)$ ]] || die 2 "--backend is docker or process, not '$backend'."

cd -- "$root"
set_up cpu
if [[ -z $backend ]]; then
    backend=process
    ! python -c "import docker; docker.from_env().ping()" 2>/dev/null || backend=docker
fi
out=${out:-$root/.cache/gaia-mini-$backend}
mkdir -p -- "$out"
cd -- "$out"
recipes=$root/recipes/gaia scripts=$root/scripts data=data/files suffix=""
((seed == 0)) || suffix=-seed$seed
model=models/files$suffix
overrides=(env.backend="$backend" ${overrides[@]+"${overrides[@]}"})

completed() { grep -q '"status": "completed"' "runs/$1/summary.json" 2>/dev/null; }

# rung NAME [KEY=VALUE...]: trains by recipes/gaia/files-cpu-NAME.
rung() {
    local name=files-cpu-$1 resume=()
    shift
    ! completed "$name$suffix" || return 0
    [[ ! -f runs/$name$suffix/recipe.yaml ]] || resume=(--resume)
    step "Training: $name, seed $seed." aworld-train train "$recipes/$name.yaml" name="$name$suffix" \
        trainer.seed="$seed" "$@" "${overrides[@]}" ${resume[@]+"${resume[@]}"}
}

# evaluate NAME MODEL: on the held-out questions.
evaluate() {
    local name=$1$suffix
    completed "eval-$name" || step "Evaluating $name." aworld-train eval "$recipes/files-cpu-rl.yaml" \
        --name "$name" model.path="$2" "${overrides[@]}"
}

if [[ ! -f $data/dataset.json ]]; then
    printf 'Read the file.\n' >system.txt  # a model this small understands nothing of GAIA's own prompt
    tags=() attachments=/attachments
    for kind in csv docx epub html pdf pptx; do tags+=(--tag "$kind"); done
    [[ $backend == docker ]] || attachments=$PWD/$data/attachments
    step "Making $limit documents and questions." aworld-train dataset build files --level 1 --tag place "${tags[@]}" \
        --max-rows 6 --limit "$limit" --split train=0.857,val=0.143 --system-prompt system.txt --out "$data" \
        --attachments-at "$attachments"
fi
if [[ ! -f transcripts.jsonl ]]; then
    rm -f solver.url
    python "$scripts/files_solver.py" --mistakes 0.6 >solver.url &
    solver=$! limit_s=$((SECONDS + 60))
    trap 'kill "$solver" 2>/dev/null || true' EXIT
    until [[ -s solver.url ]]; do
        kill -0 "$solver" 2>/dev/null || die 1 "The solver ended; the reason is above."
        ((SECONDS < limit_s)) || die 1 "The solver did not start in 60 seconds."
        sleep 0.2
    done
    resume=()
    [[ ! -d runs/eval-solver ]] || resume=(--resume)
    step "The solver plays six sevenths of them." aworld-train eval "$recipes/files-cpu-rl.yaml" --name solver \
        --model-url "$(cat solver.url)" dataset.val="$data/train.parquet" "${overrides[@]}" ${resume[@]+"${resume[@]}"}
    kill "$solver"
    trap - EXIT
    step "Keeping what it did." aworld-train runs export eval-solver --format messages --out transcripts.jsonl
fi
if [[ ! -d $model ]]; then
    step "Making $model." python "$scripts/files_model.py" transcripts.jsonl "$model.partial" --seed "$seed"
    mv -- "$model.partial" "$model"
fi
[[ -f data/files-rows/train.parquet ]] || step "Making rows of tokens." aworld-train dataset rows --file transcripts.jsonl \
    --model "$model" --held-out 0.05 --out data/files-rows
rung sft model.path="$model" dataset.train=data/files-rows/train.parquet dataset.val=data/files-rows/val.parquet
rung rl model.path="runs/files-cpu-sft$suffix"
rung distill model.path="runs/files-cpu-sft$suffix" distill.teacher="runs/files-cpu-rl$suffix"
evaluate base "$model"
for name in sft rl distill; do evaluate "$name" "runs/files-cpu-$name$suffix"; done
aworld-train eval compare eval-{base,sft,rl,distill}"$suffix"
say "Curve of the training by rewards: $out/runs/files-cpu-rl$suffix/learning_curve.png"
