// SPDX-License-Identifier: BSD-2-Clause

// Go's x/time/rate, as bench/run calls it: CPU ns a call of Allow(), admitted and refused, with
// PAIR measured in the same round. Prints: name threads ns ratio_to_pair
package main

import (
	"fmt"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

const (
	rounds  = 11
	roundMs = 60
	batch   = 128
)

type subject func(n int)

// The thread's own cache lines, on both sides.
type line struct {
	_ [128]byte
	n int64
	_ [128]byte
}

func pair() subject {
	own := new(line)
	return func(n int) {
		for i := 0; i < n; i++ {
			atomic.AddInt64(&own.n, 1)
			atomic.AddInt64(&own.n, -1)
		}
	}
}

func limiter(l *rate.Limiter) subject {
	return func(n int) {
		for i := 0; i < n; i++ {
			l.Allow()
		}
	}
}

// CPU time of the calling thread, which the goroutine is locked to.
func cpuNs() int64 {
	const rusageThread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func measure(subjects []subject) float64 {
	var stop int32
	var cpu, calls int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, s := range subjects {
		wg.Add(1)
		go func(s subject) {
			defer wg.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			<-start
			began := cpuNs()
			n := int64(0)
			for atomic.LoadInt32(&stop) == 0 {
				s(batch)
				n += batch
			}
			atomic.AddInt64(&cpu, cpuNs()-began)
			atomic.AddInt64(&calls, n)
		}(s)
	}
	close(start)
	time.Sleep(roundMs * time.Millisecond)
	atomic.StoreInt32(&stop, 1)
	wg.Wait()
	return float64(cpu) / float64(calls)
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return s[len(s)/2]
}

func main() {
	names := []string{"go_pair", "go_time_rate", "go_time_rate_refuse"}
	open := limiter(rate.NewLimiter(1e12, 1<<40))
	dry := limiter(rate.NewLimiter(rate.Every(24*time.Hour), 0))
	for threads := 1; threads <= 2; threads++ {
		lists := make([][]subject, len(names))
		for t := 0; t < threads; t++ {
			lists[0] = append(lists[0], pair())
			lists[1] = append(lists[1], open)
			lists[2] = append(lists[2], dry)
		}
		ns := make([][]float64, len(names))
		ratio := make([][]float64, len(names))
		for r := 0; r < rounds; r++ {
			var p float64
			for s := range names {
				x := measure(lists[s])
				if s == 0 {
					p = x
				}
				ns[s] = append(ns[s], x)
				ratio[s] = append(ratio[s], x/p)
			}
		}
		for s, name := range names {
			fmt.Printf("%s %d %.2f %.3f\n", name, threads, median(ns[s]), median(ratio[s]))
		}
	}
}
