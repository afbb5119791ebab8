#include "millrace/tools/place_flags.h"

namespace millrace {

void PlaceFlags::AddSources(CLI::App* command) {
  command->add_option("--rank", rank, "The number of this process, if no scheduler says it");
  command->add_option("--size", size, "How many processes there are, if no scheduler says it");
  command->add_option(
      "--meet", meet,
      "The host of rank 0, or HOST:PORT, where the tasks exchange their addresses, if no scheduler says it");
  command->add_option("--address", address,
                      "The name under which other hosts reach this one. Default: what the scheduler calls it");
  command->add_option("--port", port, "The port of every task in pods; elsewhere ports are free ones")
      ->capture_default_str();
  command
      ->add_option("--start_timeout", start_timeout,
                   "Seconds until all tasks must be there; then the missing ones are named")
      ->capture_default_str();
  command->add_flag("--explain", explain, "Prints what was found and from which variables, and runs nothing");
}

void PlaceFlags::AddAccess(CLI::App* command) {
  command
      ->add_option("--grace", grace,
                   "Seconds that a program has to end: from SIGINT to SIGTERM, and from SIGTERM to SIGKILL")
      ->capture_default_str();
  notice.Add(command);
  command->add_option("--hang_kill", hang_kill, "Seconds of hanging after which the whole run fails; 0: never")
      ->capture_default_str();
  command->add_option("--log_dir", log_dir,
                      "Also writes each task's output to a file in this directory of rank 0's host");
  command->add_flag("--quiet", quiet, "Prints no messages about tasks, except for failures");
  command->add_flag(
      "--insecure", insecure,
      "Gives the job no certificates: its servers then serve anyone who can reach them, and nothing "
      "between them is encrypted. Needed in pods that have none, and for TensorFlow's clients or servers");
  command
      ->add_option("--file_root", file_roots,
                   "A folder in which the job's servers let graphs read and write files; may be repeated. Default: all "
                   "files, or with --insecure none where other machines can reach a server")
      ->allow_extra_args(false);
}

}  // namespace millrace
