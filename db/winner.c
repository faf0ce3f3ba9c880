/* winner.c - winners as a pure function of the races.
 *
 * Every race has a row in `winner` that says who won and what its default and
 * the best of the libraries' first choices took; `place` ranks the races of
 * one problem that were held on the same GPU and versions, from the same
 * source and under the same L2 policy: newest method, converged, more rounds,
 * steady before burst, then the hash.  Races are never mixed: times of two
 * races are not comparable.  Since nothing else goes in, the order in which
 * evidence came does not matter, and the table may be rebuilt at any time.
 */
#include "db/internal.h"

/* Columns in the order of the table; see schema.c. */
const char cuvil_db_derive_sql[] =
    "SELECT r.id, r.problem_id,"
    " row_number() OVER (PARTITION BY r.problem_id, c.gpu_id, c.versions_id,"
    "   c.source, c.l2 ORDER BY c.method DESC, r.converged DESC,"
    "   r.rounds DESC, c.regime DESC, r.hash),"
    " w.candidate_id,"
    " EXISTS (SELECT 1 FROM race_participant x WHERE x.race_id = r.id"
    "   AND x.library = 'cublaslt'),"
    " EXISTS (SELECT 1 FROM race_participant x WHERE x.race_id = r.id"
    "   AND x.library = 'cudnn'),"
    " w.median,"
    " d.candidate_id, d.median, d.ratio_low,"
    " l.candidate_id, l.median, l.ratio_low"
    " FROM race r JOIN circumstance c ON c.id = r.circumstance_id"
    " JOIN race_participant w ON w.race_id = r.id AND (w.flags & 8) <> 0"
    " LEFT JOIN race_participant d ON d.race_id = r.id AND d.position ="
    "   (SELECT x.position FROM race_participant x WHERE x.race_id = r.id"
    "     AND (x.flags & 17) = 1 AND x.median > 0"
    "     ORDER BY x.position LIMIT 1)"
    " LEFT JOIN race_participant l ON l.race_id = r.id AND l.position ="
    "   (SELECT x.position FROM race_participant x WHERE x.race_id = r.id"
    "     AND (x.flags & 18) = 2 AND x.median > 0"
    "     ORDER BY x.median, x.position LIMIT 1)"
    " WHERE ?1 IS NULL OR r.problem_id = ?1";

_Static_assert(CUVIL_RACE_DEFAULT == 1 && CUVIL_RACE_LIBRARY_FIRST == 2 &&
                   CUVIL_RACE_WINNER == 8 && CUVIL_RACE_CONTROL == 16,
               "the flags that the query masks: stored, so frozen");

enum cuvil_status cuvil_db_derive(struct cuvil_db *db, int64_t problem_id) {
  const char *kinds = problem_id ? "i" : "n";
  struct cuvil_buf sql = {0};
  CUVIL_TRY(
      cuvil_db_run(db, "DELETE FROM winner WHERE ?1 IS NULL OR problem_id = ?1",
                   kinds, problem_id));
  cuvil_buf_printf(&sql, "INSERT INTO winner %s", cuvil_db_derive_sql);
  enum cuvil_status status = cuvil_buf_status(&sql);
  if (status == CUVIL_OK)
    status = cuvil_db_run(db, cuvil_buf_text(&sql), kinds, problem_id);
  cuvil_buf_free(&sql);
  return status;
}
