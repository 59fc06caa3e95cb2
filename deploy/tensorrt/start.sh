#!/bin/sh
# Entry point of the serving container: no plan of another GPU, TensorRT or ONNX file is ever loaded.
#   start.sh REPOSITORY [options of tritonserver]
set -eu
repository=$1
shift
python3 "$(dirname "$0")/build_plans.py" check "$repository"
exec tritonserver --model-repository="$repository" --model-control-mode=explicit "$@"
