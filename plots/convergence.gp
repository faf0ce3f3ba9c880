
# ---- convergence.gp
set xlabel "timed candidates, in the order of recording"
set xrange [0:trials * 1.02 + 1]
set logscale y 10
set format y "%g"
# A logarithmic axis of less than a decade needs more than its powers of ten.
set ytics add ("2" 2, "3" 3, "5" 5, "20" 20, "30" 30, "50" 50, "200" 200, \
  "300" 300, "500" 500, "2000" 2000, "5000" 5000)
if (problems == 1) {
  set ylabel "time of one run [us]"
  set yrange [best * 0.85:y_high]
  plot data index 0 using 1:($4 == 0 ? $2 : NaN) with points pointtype 7 \
         pointsize 0.9 * point linecolor rgb "#0072B2" title "own kernel", \
       data index 0 using 1:($4 == 1 ? $2 : NaN) with points pointtype 4 \
         pointsize 1.1 * point linewidth 1.5 linecolor rgb "#000000" title (libraries > 0 ? "library" : ""), \
       data index 0 using 1:3 with steps linewidth 2.5 \
         linecolor rgb "#D55E00" title sprintf("best so far (%.2f us at %d)", best, best_at)
} else {
  set ylabel "best so far / final best of the problem"
  set ytics add ("1.2" 1.2, "1.5" 1.5)
  set yrange [0.97:y_high]
  plot for [i = 1:int(problems)] data index i using 1:2 with steps \
         linewidth 1 linecolor rgb "#BBBBBB" \
         title (i == 1 ? "one problem" : ""), \
       data index 0 using 1:3 with steps linewidth 2.5 dashtype 2 \
         linecolor rgb "#D55E00" title "ninth decile", \
       data index 0 using 1:2 with steps linewidth 3 \
         linecolor rgb "#0072B2" title "median"
}
