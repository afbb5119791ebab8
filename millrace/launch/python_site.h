// `millrace launch --python`: every Python of the job loads Millrace's servers in the place of TensorFlow's.
//
// The Python package (python/millrace) has a folder with a sitecustomize.py that does it; the keeper puts this folder
// at the beginning of PYTHONPATH.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"

namespace millrace::launch {

// Set to "1" in the environment of a program whose Pythons load Millrace's servers.
inline constexpr char kPythonServersVariable[] = "MILLRACE_PYTHON_SERVERS";

// The folder of sitecustomize.py that belongs to the millrace command at the path `command`: in a wheel, an installed
// package or a build tree. NOT_FOUND says where it looked and what to do.
StatusOr<std::string> FindPythonSite(const std::string& command);

// If `environment` ("NAME=VALUE", added to that of this process) asks for Millrace's servers, puts the folder that
// belongs to this process's own program before what PYTHONPATH is there, and in this process's environment otherwise.
Status AddPythonSite(std::vector<std::string>* environment);

}  // namespace millrace::launch
