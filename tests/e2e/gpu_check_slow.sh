#!/usr/bin/env bash
# What a borrowed GPU machine is to do, rehearsed: the programs of the emulated GPU are packed, unpacked and
# checked by tools/gpu_check.sh, all three parts, with nothing of this machine's environment. Stand-ins: nvidia-smi,
# and empty files for the CUDA libraries. Only the numbers are not a GPU's.
# Environment: FSDP_EMULATED, TEST_CUDA_EMULATOR the programs (absent: skipped), MPIRUN, SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"
if [ ! -x "$FSDP_EMULATED" ] || [ ! -x "$TEST_CUDA_EMULATOR" ]; then
  echo "[SKIP] gpu_check_slow: no emulated GPU was built"
  exit 77
fi
mkdir -p bin there out wheels
PROGRAMS="$FSDP_EMULATED $TEST_CUDA_EMULATOR" "$SOURCE/tools/gpu_prebuild.sh" -o prebuilt.tar >pack.log 2>&1 ||
  { cat pack.log; fail "nothing was packed"; exit 1; }
tar -C there -xf prebuilt.tar
touch wheels/lib{cublasLt.so.13,nvrtc-builtins.so.13.0,cudnn.so.9,nccl.so.2}
cat >bin/nvidia-smi <<'S'
#!/usr/bin/env bash
case "$*" in
  -L) echo "GPU 0: emulated GPU" ;;
  *nounits) echo 8192 ;;
  *name,*) echo "emulated GPU, 8192 MiB, -, -, -" ;;
esac
S
printf '#!/usr/bin/env bash\n[[ "$*" != *"import glob, nvidia"* ]] || { echo "%s"; exit; }\nexit 1\n' "$scratch/wheels" >bin/python3
chmod +x bin/*
for part in first second third; do
  env -i PATH="$scratch/bin:/usr/bin:/bin:/usr/sbin" HOME="$scratch" PREBUILT=there/prebuilt OUT=out SMALL=1 LIMITS=10 \
    "$SOURCE/tools/gpu_check.sh" $part >$part.log 2>&1 || fail "$part: status $?"
  cat out/table.txt
  tar -xzf out/logs.tar.gz
done
for stage in versions step cudnn tests dispatch timed fixtures kernels models large vocabulary nccl; do
  grep -qE "^$stage +passed" first.log second.log || { fail "$stage"; cat "logs/$stage.log"; }
done
for stage in ranks killed; do
  [ -z "${MPIRUN:-}" ] || grep -qE "^$stage +passed" second.log || { fail "$stage"; cat "logs/$stage.log"; }
done
exit "$failed"
