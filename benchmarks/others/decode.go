// Does with a file what franz-go does with the records of Fetch answers of 1 MiB: checks the CRC of each batch and makes a
// kgo.Record of each record.
//
// A line of input names a file and how often to read it; a line of output has its records and the CPU of this process, all
// threads, in nanoseconds.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const readSize = 1 << 20

var decompressor = kgo.DefaultDecompressor()

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var times, records int
		path, count, _ := strings.Cut(lines.Text(), "\t")
		fmt.Sscan(count, &times)
		before := cpu()
		for range times {
			records = read(path)
		}
		fmt.Printf("%d\t%d\n", records, cpu()-before)
	}
}

func read(path string) (records int) {
	file, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	buffer := make([]byte, 2*readSize)
	held, next := 0, int64(0)
	for {
		if len(buffer)-held < readSize {
			buffer = append(buffer, make([]byte, len(buffer))...)
		}
		got, err := io.ReadFull(file, buffer[held:held+readSize])
		end, whole := held+got, 0
		for end-whole >= 12 {
			size := 12 + int(binary.BigEndian.Uint32(buffer[whole+8:]))
			if end-whole < size {
				break
			}
			whole += size
		}
		// The records refer to the bytes of an answer, and each answer has its own.
		answer := kmsg.NewFetchResponseTopicPartition()
		answer.RecordBatches = append([]byte(nil), buffer[:whole]...)
		options := kgo.ProcessFetchPartitionOpts{Offset: next, Topic: "bench"}
		partition, after := kgo.ProcessFetchPartition(options, &answer, decompressor, nil)
		if partition.Err != nil {
			panic(partition.Err)
		}
		records += len(partition.Records)
		next = after
		held = copy(buffer, buffer[whole:end])
		if err != nil {
			if held > 0 {
				panic("the file ends within a batch")
			}
			return records
		}
	}
}

func cpu() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
