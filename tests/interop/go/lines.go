package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
)

type line map[string]any

var (
	outMu sync.Mutex
	out   = bufio.NewWriter(os.Stdout)
)

// printLine writes one JSON object; safe from any goroutine.
func printLine(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	outMu.Lock()
	defer outMu.Unlock()
	out.Write(append(text, '\n'))
}

func flush() {
	outMu.Lock()
	defer outMu.Unlock()
	out.Flush()
}
