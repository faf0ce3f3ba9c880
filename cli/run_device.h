/* run_device.h - one run on the GPU: outputs, latency, a profile. */
#ifndef CUVIL_CLI_RUN_DEVICE_H_
#define CUVIL_CLI_RUN_DEVICE_H_

#include "cli/run_io.h"

/* A count or a time, whichever is reached last; seconds 0: only the count. */
struct cuvil_run_amount {
  int64_t count;
  double seconds;
};
/* "20" or "500ms". */
CUVIL_MUST_USE enum cuvil_status cuvil_run_amount_parse(
    const char *option, const char *text, struct cuvil_run_amount *out);

struct cuvil_run_times {
  double *seconds; /* of each run; owned */
  int count;
};
void cuvil_run_times_free(struct cuvil_run_times *times);

/* Uploads the inputs, runs once, downloads the outputs. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_once(struct cuvil_gpu *gpu,
                                                struct cuvil_session *session,
                                                struct cuvil_gpu_stream *stream,
                                                struct cuvil_run_io *io);
/* Warms up, then times single launches of the graph by event pairs. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_latency(
    struct cuvil_gpu *gpu, struct cuvil_session *session,
    struct cuvil_gpu_stream *stream, const struct cuvil_run_amount *warm_up,
    const struct cuvil_run_amount *runs, struct cuvil_run_times *out);
/* Median, percentiles, least; on `to` and as an object (new reference) when
 * out_json is not NULL. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_report_times(
    const struct cuvil_run_times *times, FILE *to, json_t **out_json);
/* Table of the steps, each timed by itself; destroys the session's inputs. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_profile(
    struct cuvil_session *session, const struct cuvil_plan *plan, FILE *to,
    json_t **out_json);

#endif /* CUVIL_CLI_RUN_DEVICE_H_ */
