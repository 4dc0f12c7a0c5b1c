// Package talk is what the clients in Go share: what they are asked for, and the lines that they print.
package talk

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Wanted is one conversation, the program's only argument.
type Wanted struct {
	Bootstrap []string `json:"bootstrap"`
	Username  string   `json:"username"`
	Password  string   `json:"password"`
	Authority string   `json:"authority"`
	Topic     string   `json:"topic"`
	Count     int      `json:"count"`
	Group     string   `json:"group"`
	Into      string   `json:"into"`
	Written   int      `json:"written"`
}

// Partitions of each topic.
const Partitions = 3

// Patience ends a conversation that goes nowhere.
const Patience = 90 * time.Second

// Header is one of a record.
type Header struct {
	Name  string
	Value []byte
}

var out = bufio.NewWriter(os.Stdout)

// Read gives what is wanted; the program ends by itself when its patience does.
func Read() Wanted {
	var wanted Wanted
	Must(json.Unmarshal([]byte(os.Args[1]), &wanted))
	time.AfterFunc(Patience, func() { Must(fmt.Errorf("not done after %v", Patience)) })
	return wanted
}

// TLS trusts the authority alone.
func (wanted Wanted) TLS() *tls.Config {
	text, err := os.ReadFile(wanted.Authority)
	Must(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		Must(fmt.Errorf("no certificate in %s", wanted.Authority))
	}
	return &tls.Config{RootCAs: pool}
}

// Record prints a line for a record.
func Record(kind string, partition int, offset int64, at time.Time, key, value []byte, headers ...Header) {
	fmt.Fprintf(out, "%s %d %d %d %q %q", kind, partition, offset, at.UnixMilli(), key, value)
	for _, one := range headers {
		fmt.Fprintf(out, " %s=%q", one.Name, one.Value)
	}
	fmt.Fprintln(out)
}

// Acked prints a line for a record that was written.
func Acked(partition int, offset int64) { fmt.Fprintf(out, "acked %d %d\n", partition, offset) }

// Value of a record that is written.
func Value(number int) []byte { return []byte(fmt.Sprintf("written-%d", number)) }

// Done flushes the lines.
func Done() { Must(out.Flush()) }

// Must ends the program at an error.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
