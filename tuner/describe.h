/* describe.h - architecture and environment as JSON: the measuring worker's
 * first answer, and the head of a recording. */
#ifndef CUVIL_TUNER_DESCRIBE_H_
#define CUVIL_TUNER_DESCRIBE_H_

#include "base/arch.h"
#include "base/env.h"
#include "base/json.h"

/* New references; NULL when memory is used up. */
json_t *cuvil_arch_to_json(const struct cuvil_arch *arch);
json_t *cuvil_env_to_json(const struct cuvil_env *env);
CUVIL_MUST_USE enum cuvil_status cuvil_arch_from_json(const json_t *json,
                                                      const char *origin,
                                                      struct cuvil_arch *out);
CUVIL_MUST_USE enum cuvil_status cuvil_env_from_json(const json_t *json,
                                                     const char *origin,
                                                     struct cuvil_env *out);

#endif /* CUVIL_TUNER_DESCRIBE_H_ */
