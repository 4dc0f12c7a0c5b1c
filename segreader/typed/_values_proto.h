/* Protobuf's wire format. */

static const uint8_t *run_proto(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    (void)step;
    (void)stop;
    return fail(m, BAD_TAG, at);
}
