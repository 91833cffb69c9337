// What the user said to OpenMP: OMP_NUM_THREADS, OMP_DYNAMIC, OMP_PROC_BIND, OMP_PLACES and
// GOMP_CPU_AFFINITY. The OpenMP library does not see these variables of the program.
// Not here: how many threads a rank has (thread_choice.h).
//
// [Note: who binds threads]
// Given one of the last three, the OpenMP library binds the first thread to one core before main()
// begins. Threads that this thread starts inherit its core. Each rank and each stream is such a
// thread here, and each has a team of its own: the library would bind all teams to the same cores.
// So the library does not see these variables, the program binds no thread, and a note says so. The
// cores of a process are chosen from outside: taskset, numactl, mpirun, srun, a control group.
// The library would also complain about a number of threads that it cannot read, and with
// OMP_DYNAMIC take fewer on a busy machine. Here it never decides that number
// (kernels/cpu/parallel.h).
#pragma once

#include <functional>
#include <string>

namespace fsdp::tools {

// Its value; null: it is not set.
const char* openmp_variable(const char* name);

// The note on a variable that would bind threads; "": none is set.
std::string note_on_binding(const std::function<const char*(const char* name)>& variable);

// As the user called a variable of this process's environment, which may be a hidden one.
std::string name_before_hiding(const std::string& variable);

// Gives the hidden variables their own names again: of a process that only starts others, which
// inherit its environment. Whatever reads the names there then finds what the user has set.
void show_openmp_variables(char** environment);

// Hides the variables from everybody but openmp_variable(). Called before the constructors of all
// libraries, by the program's table of such functions. `environment`: ends with a null pointer.
void hide_openmp_variables(char** environment);

}  // namespace fsdp::tools
