package redistest

import (
	"bufio"
	"hash/fnv"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// StartProxy runs a proxy that sends each command to one of the servers, by its first key, and a script
// with all of its keys, too. It answers PING and the like by the first server. It returns the proxy's
// address.
func StartProxy(t testing.TB, servers ...*Server) string {
	t.Helper()
	return listen(t, func(client net.Conn) { serveProxy(client, servers) })
}

// StartFake runs a server that answers each command with what answer returns, in RESP. It returns the
// server's address.
func StartFake(t testing.TB, answer func(command []string) string) string {
	t.Helper()
	return listen(t, func(client net.Conn) {
		defer client.Close()
		for commands := bufio.NewReader(client); ; {
			_, command, err := readValue(commands)
			if err != nil {
				return
			}
			if _, err := io.WriteString(client, answer(command)); err != nil {
				return
			}
		}
	})
}

// listen serves connections until the test ends, and returns the address.
func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(client)
		}
	}()
	return listener.Addr().String()
}

func serveProxy(client net.Conn, servers []*Server) {
	defer client.Close()
	var conns []*conn
	for _, server := range servers {
		conn, err := server.open()
		if err != nil {
			return
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for commands := bufio.NewReader(client); ; {
		raw, words, err := readValue(commands)
		if err != nil || len(words) == 0 {
			return
		}
		key := 1
		switch command := strings.ToUpper(words[0]); {
		case command == "EVAL", command == "EVALSHA":
			key = 3
		case slices.Contains([]string{"PING", "HELLO", "CLIENT", "INFO", "SCRIPT", "TIME"}, command):
			key = len(words)
		}
		to := conns[0]
		if key < len(words) {
			h := fnv.New32a()
			_, _ = io.WriteString(h, words[key])
			to = conns[h.Sum32()%uint32(len(conns))]
		}
		if _, err := io.WriteString(to, raw); err != nil {
			return
		}
		answer, _, err := readValue(to.answers)
		if err != nil {
			return
		}
		if _, err := io.WriteString(client, answer); err != nil {
			return
		}
	}
}

// readValue reads a value of RESP2 or RESP3, and the strings in it.
func readValue(r *bufio.Reader) (raw string, words []string, _ error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch kind := line[0]; kind {
	case '$', '=', '!':
		if n < 0 {
			return line, nil, nil
		}
		text := make([]byte, n+len("\r\n"))
		_, err := io.ReadFull(r, text)
		return line + string(text), []string{string(text[:n])}, err
	case '*', '%', '~', '>':
		if kind == '%' {
			n *= 2
		}
		for range n {
			part, more, err := readValue(r)
			if err != nil {
				return "", nil, err
			}
			line += part
			words = append(words, more...)
		}
	}
	return line, words, nil
}
