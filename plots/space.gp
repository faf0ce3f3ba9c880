
# ---- space.gp
unset key
unset grid
set border 0
set tics scale 0
set rmargin at screen 0.86
set xlabel x_name
set ylabel y_name
columns = |x_value|
rows = |y_value|
set xrange [-0.5:columns - 0.5]
set yrange [-0.5:rows - 0.5]
set xtics ()
set ytics ()
do for [i = 1:columns] { set xtics add (sprintf("%g", x_value[i]) i - 1) }
do for [i = 1:rows] { set ytics add (sprintf("%g", y_value[i]) i - 1) }
# Viridis, bright is fast: told apart by the colour-blind and in grey.
set palette defined (0 "#FDE725", 0.25 "#5EC962", 0.5 "#21918C", \
  0.75 "#3B528B", 1 "#440154")
set logscale cb
set cbrange [best:(worst > best * 1.01 ? worst : best * 1.01)]
set cblabel "best time of one run [us]"
set format cb "%g"
set cbtics (sprintf("%.3g", best) best, sprintf("%.3g", worst) worst)
# Round numbers between, where they do not run into the ends.
do for [round in "0.5 1 2 3 5 10 20 30 50 100 200 300 500 1000 2000 5000 10000"] {
  if (round > best * (worst / best) ** 0.05 && \
      round < worst / (worst / best) ** 0.05) {
    set cbtics add (round round + 0)
  }
}
middle = sqrt(best * worst)
text(t, n, f) = t < 0 ? (f > 0 ? sprintf("%d failed", f) : "not tried") \
  : sprintf("%.2f\n%d timed", t, n)
size = columns > 12 || rows > 12 ? 8 : 11
set style fill solid noborder
plot data index 0 using 1:($3 < 0 ? $2 : NaN):(0.48):(0.48) \
       with boxxyerror fillstyle pattern 4 fillcolor rgb "#D0D0D0", \
     data index 0 using ($3 < 0 ? NaN : $1):2:(0.48):(0.48):3 with boxxyerror \
       fillcolor palette, \
     data index 0 using 1:2:(text($3, $4, $5)):($3 > middle ? \
       0xFFFFFF : 0x000000) with labels font sprintf(",%d", size) \
       textcolor rgb variable
