// Initialisation of gRPC.
#pragma once

namespace millrace::net {

// Call it before using gRPC. gRPC stays initialised until the process ends, since objects that it refers to may outlive
// a transport.
void InitGrpc();

}  // namespace millrace::net
