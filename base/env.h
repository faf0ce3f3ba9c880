/* env.h - the environment a time was taken in; a part of every measurement.
 *
 * Versions are text as the component reports itself; "" when the component is
 * absent.  A replayed recording carries the environment of the machine that
 * recorded it.
 */
#ifndef CUVIL_BASE_ENV_H_
#define CUVIL_BASE_ENV_H_

#include <stdint.h>

struct cuvil_env {
  char gpu[96];  /* product name: "NVIDIA H200" */
  char arch[16]; /* "sm_90" */
  int sms;
  int64_t memory_bytes;
  int64_t l2_bytes;
  char driver[32];   /* "580.159.04" */
  char cuda[16];     /* driver's CUDA version: "13.0" */
  char nvrtc[16];    /* "13.0" */
  char cublaslt[24]; /* "13.1.0" */
  char cudnn[24];    /* "9.14.0" */
};

#endif /* CUVIL_BASE_ENV_H_ */
