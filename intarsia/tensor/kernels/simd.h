// One body, compiled for several instruction sets and chosen when the program starts. With -ffp-contract=off and only
// correctly rounded operations (+ - * / sqrt) an element gets the same bits in each of them, in a vector body and in a
// scalar tail. Internal to kernels.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define INTARSIA_SIMD __attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3")))
#else
#define INTARSIA_SIMD
#endif
