// What no run shows: Hopper's asynchronous units must be waited for, and a kernel that does not wait is right as long
// as they happen to be early. compute-sanitizer's racecheck does not see what TMA and wgmma read and write.
#ifndef ROOFTUNE_TESTS_MUTANTS_ASYNC_ORDER_H_
#define ROOFTUNE_TESTS_MUTANTS_ASYNC_ORDER_H_

#include <string>

namespace rooftune {

// What is out of order in the machine code of a cubin for sm_90, one line a fault; empty = nothing:
// - a barrier in shared memory is arrived at after warpgroup products were issued and before any were waited for: TMA
//   may refill what they still read;
// - TMA stores from shared memory after threads put values there and before a fence of the asynchronous proxy or
//   before a barrier;
// - in code whose threads copy to shared memory (cp.async), products are issued after waiting for a barrier and before
//   a fence of the asynchronous proxy.
// Code is read in the order of addresses; branches are not followed.
std::string AsyncOrderFaults(const std::string& cubin);

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_MUTANTS_ASYNC_ORDER_H_
