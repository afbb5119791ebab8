// gRPC as a library of the process.
#pragma once

namespace millrace::net {

// Before anything of gRPC's is used. gRPC stays until the process ends: what it counts references to may outlive a transport.
void InitGrpc();

}  // namespace millrace::net
