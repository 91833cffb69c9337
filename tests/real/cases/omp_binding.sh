# OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY, as clusters recommend them
# why: the OpenMP library binds the first thread to one core before main(), and all threads inherit it
# source: https://github.com/ICLDisco/parsec/issues/231
# source: https://github.com/OpenMathLib/OpenBLAS/issues/2238
# before: one thread on one core, without a word
# expect: 1 number of threads
yes 'a text' | head -c 300 >text.txt
for variables in X=1 'OMP_PROC_BIND=close,spread OMP_PLACES=cores GOMP_CPU_AFFINITY=0-1023'; do
  env -u OMP_NUM_THREADS $variables "$FSDP" train --data text.txt --steps 1 --batch 1 --set \
    model.model_type=llama model.hidden_size=8 model.layers=1 model.heads=2 data.sequence_length=16 \
    runtime.run_dir=run runtime.monitor_s=0 2>&1 | grep -o '[0-9]* threads* each'
  rm -rf run
done >threads
echo "$(sort -u threads | grep -c .) number of threads"
