// Each prints one section of Markdown. Throws std::runtime_error with the call that failed.
#pragma once

#include <string>

namespace gpu_ceilings {

// Those whose names contain `only`.
void PrintConvolutions(const std::string& only);
void PrintProducts();
void PrintLaunches();

// Writes what cuDNN knows of the card.
void WriteProperties(const std::string& path);
// The engines that cuDNN offers for every convolution on the card of the file. Needs no GPU. Returns how many
// convolutions and gradients have none that is deterministic.
int PrintPlans(const std::string& path);

}  // namespace gpu_ceilings
