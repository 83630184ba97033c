// Command-line programs on the unmodified Apache RocketMQ Go client. Each prints one JSON object a line on standard
// output; the tests read those lines and judge.
//
//	produce --namesrv A --topic T [--mode sync|async|oneway|batch] [--count N] [--first N] [--size B] [--batch N]
//	        [--tags a,b] [--keys prefix] [--prop name=value]...
//	consume --namesrv A --topic T --group G [--tags expr] [--expect N] [--timeout s] [--settle ms] [--orderly true]
//	        [--model broadcast] [--from first|last] [--fail first|always] [--delay-level N]
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	if len(os.Args) < 2 {
		usage()
	}
	o, err := parse(os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	switch os.Args[1] {
	case "produce":
		err = produce(o)
	case "consume":
		err = consume(o)
	default:
		usage()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: produce|consume --name value ...")
	os.Exit(2)
}

// options of the form --name value; a name may be given several times.
type options map[string][]string

func parse(args []string) (options, error) {
	o := options{}
	for i := 0; i < len(args); i += 2 {
		if !strings.HasPrefix(args[i], "--") || i+1 == len(args) {
			return nil, fmt.Errorf("expected --name value, saw %s", args[i])
		}
		name := args[i][2:]
		o[name] = append(o[name], args[i+1])
	}
	return o, nil
}

func (o options) text(name, otherwise string) string {
	if all := o[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return otherwise
}

func (o options) number(name string, otherwise int) int {
	if n, err := strconv.Atoi(o.text(name, "")); err == nil {
		return n
	}
	return otherwise
}

func (o options) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{o.text("namesrv", "")})
}
