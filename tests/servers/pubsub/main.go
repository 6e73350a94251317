// A Pub/Sub server in memory, for tests: pubsub-fake 127.0.0.1:PORT prints its address once it answers there.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	server := pstest.NewServerWithAddress(os.Args[1])
	defer server.Close()
	fmt.Println(server.Addr)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
}
