#!/usr/bin/env bash
# Runs a program on another machine with what tools/gpu_prebuild.sh has packed: prebuilt/run PROGRAM ARGUMENTS...
# PROGRAM is one of bin/, or any other of that machine. The loader finds the carried libraries first, then
# those of the CUDA wheels of that machine's python3, then those of its toolkit. mpirun finds its plugins.
here=$(cd "$(dirname "$0")" && pwd)
: "${CUDA_WHEELS=$(python3 -c 'import glob, nvidia
print(":".join(f for p in nvidia.__path__ for f in sorted(glob.glob(p + "/*/lib"))))' 2>/dev/null)}"
export CUDA_WHEELS  # looked up once
toolkit=${CUDA_HOME:-/usr/local/cuda}
libraries=$here/lib${CUDA_WHEELS:+:$CUDA_WHEELS}
for folder in "$toolkit/lib64" /usr/local/nvidia/lib64; do
  [ ! -d "$folder" ] || libraries+=:$folder
done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH=$here/bin:$PATH:$toolkit/bin:$toolkit/compute-sanitizer

# Open MPI away from the place that it was built for. One host: no agent for others, no network.
export OPAL_PREFIX=$here/mpi OPAL_DATADIR=$here/mpi/share OPAL_SYSCONFDIR=$here/mpi/etc
export OPAL_LIBDIR=$here/lib OPAL_PKGLIBDIR=$here/mpi OMPI_MCA_mca_base_component_path=$here/mpi/plugins
export PMIX_INSTALL_PREFIX=$here/mpi PMIX_MCA_mca_base_component_path=$here/mpi/pmix
export PMIX_MCA_pcompress_base_silence_warning=1 OMPI_MCA_mca_base_component_show_load_errors=0
export OMPI_MCA_plm_rsh_agent=true OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
export OMPI_MCA_btl_vader_single_copy_mechanism=none  # a container may forbid what the others need
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec "$@"
