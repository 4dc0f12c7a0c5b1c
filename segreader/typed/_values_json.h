/* JSON. */

static const uint8_t *run_json(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    (void)step;
    (void)stop;
    return fail(m, BAD_SYNTAX, at);
}

/* A whole value of a record: with white space around it. Returns `stop`, or the first byte that is left over. */
static const uint8_t *run_json_root(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    return run_json(m, step, at, stop);
}
