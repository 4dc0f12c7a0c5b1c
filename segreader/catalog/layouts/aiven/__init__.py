"""What Aiven's "Tiered Storage for Apache Kafka" writes: a log in chunks, its indexes in one object, a manifest."""
